// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// What the core takes from a driver. The core's memory is everybody's: what is more is refused before it is decoded.
// docs/plugin-protocol.md has these numbers for authors.
const (
	// MaxReply is the length in bytes of an answer to any call but Translate.
	MaxReply = 1 << 20
	// MaxReplyElements is how many messages and texts such an answer may have in it.
	MaxReplyElements = 1 << 16
	// MaxAnswer is the length in bytes of one message of the stream; a longer one ends the stream.
	MaxAnswer = 16 << 20
	// MaxAnswerResults is how many results one message of the stream may have; more end the stream.
	MaxAnswerResults = 1 << 13
	// MaxResult is the length in bytes of one object's result. A longer one is an error of that object.
	MaxResult = 8 << 20
	// MaxResultElements is how many messages and texts one object's result may have in it. More are an error of that
	// object.
	MaxResultElements = 1 << 19
	// MaxAnswerElements is how many messages and texts one message of the stream may have in it. A result that exceeds
	// it is an error of its object.
	MaxAnswerElements = 1 << 20
	// MaxErrorText is how many bytes of an error's message are kept.
	MaxErrorText = 4 << 10
)

// brokerMethod is go-plugin's way to further connections, which drivers do not need. Every message of it costs the
// core a goroutine.
const brokerMethod = "/plugin.GRPCBroker/StartStream"

func refuseBroker(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if method == brokerMethod {
		return nil, status.Error(codes.Unimplemented, "there is no broker")
	}
	return streamer(ctx, desc, conn, method, opts...)
}

// sparing is the codec of the core's end: it checks what memory a message would take before it decodes it.
type sparing struct{ encoding.CodecV2 }

func newSparing() encoding.CodecV2 { return sparing{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (s sparing) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("a %T cannot be decoded", v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	raw := buffer.ReadOnlyData()
	if answer, ok := v.(*ravenv1.TranslateResponse); ok {
		return decodeAnswer(raw, answer)
	}
	if !within(raw, message.ProtoReflect().Descriptor(), MaxReplyElements) {
		return fmt.Errorf("the answer has more than %d elements", MaxReplyElements)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, message)
}

// decodeAnswer decodes a message of the stream, result by result: one that is too large becomes an error of its object.
func decodeAnswer(raw []byte, answer *ravenv1.TranslateResponse) error {
	results := answer.ProtoReflect().Descriptor().Fields().ByName("results").Number()
	left := MaxAnswerElements
	if len(raw)/2 <= MaxResultElements {
		left = math.MaxInt // each takes two bytes at least, so there is nothing to count
	}
	for len(raw) > 0 {
		number, kind, length := protowire.ConsumeTag(raw)
		if length < 0 {
			return protowire.ParseError(length)
		}
		value := protowire.ConsumeFieldValue(number, kind, raw[length:])
		if value < 0 {
			return protowire.ParseError(value)
		}
		field := raw[length : length+value]
		raw = raw[length+value:]
		if number != results || kind != protowire.BytesType {
			continue // of a newer contract
		}
		if len(answer.GetResults()) == MaxAnswerResults {
			return fmt.Errorf("there are more than %d results in one message", MaxAnswerResults)
		}
		body, _ := protowire.ConsumeBytes(field)
		result, err := decodeResult(body, &left)
		if err != nil {
			return err
		}
		answer.Results = append(answer.Results, result)
	}
	return nil
}

// decodeResult decodes one result; left is how many elements its message may have more.
func decodeResult(raw []byte, left *int) (*ravenv1.TranslateResult, error) {
	result := &ravenv1.TranslateResult{}
	if len(raw) > MaxResult {
		return tooLarge(raw, fmt.Sprintf("it is %d bytes long, more than %d", len(raw), MaxResult)), nil
	}
	if *left != math.MaxInt {
		own := min(MaxResultElements, *left)
		rest := own
		if !spend(raw, result.ProtoReflect().Descriptor(), &rest, maxDepth) {
			return tooLarge(raw, fmt.Sprintf("it has more than %d elements", own)), nil
		}
		*left -= own - rest
	}
	return result, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, result)
}

// tooLarge makes an error of a result, of which nothing is read but whose it is.
func tooLarge(raw []byte, what string) *ravenv1.TranslateResult {
	result := &ravenv1.TranslateResult{}
	id := result.ProtoReflect().Descriptor().Fields().ByName("id").Number()
	for len(raw) > 0 {
		number, kind, length := protowire.ConsumeTag(raw)
		if length < 0 {
			break
		}
		if number == id && kind == protowire.VarintType {
			result.Id, _ = protowire.ConsumeVarint(raw[length:])
		}
		value := protowire.ConsumeFieldValue(number, kind, raw[length:])
		if value < 0 {
			break
		}
		raw = raw[length+value:]
	}
	return failed(result, &Error{Code: Terminal, Message: "the driver's answer is too large: " + what})
}

// within says whether a message has at most so many messages and texts in it, however deep.
func within(raw []byte, of protoreflect.MessageDescriptor, most int) bool {
	if len(raw)/2 <= most {
		return true // each takes two bytes at least
	}
	left := most
	return spend(raw, of, &left, maxDepth)
}

// maxDepth is how deep messages of the contract lie in each other, and more.
const maxDepth = 32

// spend counts down for each. What is not well formed is left to the decoder, which refuses it.
func spend(raw []byte, of protoreflect.MessageDescriptor, left *int, depth int) bool {
	fields := of.Fields()
	for len(raw) > 0 {
		number, kind, length := protowire.ConsumeTag(raw)
		if length < 0 {
			return true
		}
		value := protowire.ConsumeFieldValue(number, kind, raw[length:])
		if value < 0 {
			return true
		}
		field := fields.ByNumber(number)
		if field != nil && kind == protowire.BytesType {
			if *left--; *left < 0 {
				return false
			}
			if inner := field.Message(); inner != nil {
				body, _ := protowire.ConsumeBytes(raw[length : length+value])
				if depth == 0 || !spend(body, inner, left, depth-1) {
					return false
				}
			}
		}
		raw = raw[length+value:]
	}
	return true
}

// checkCounts refuses a result with more parts than a Set may have, before it is turned into one.
func checkCounts(result *ravenv1.TranslateResult) error {
	set := result.GetSet()
	for what, count := range map[string]int{
		"needs": len(result.GetNeeds()), "resources": len(set.GetResources()), "contributions": len(set.GetContributions()),
		"outputs": len(set.GetOutputs()), "diagnostics": len(set.GetDiagnostics()),
		"undecided names": len(set.GetUndecided()),
	} {
		if count > drivers.MaxParts {
			return &Error{
				Code: Terminal,
				Message: fmt.Sprintf("the driver's answer is too large: there are %d %s, more than %d", count, what,
					drivers.MaxParts),
			}
		}
	}
	return nil
}

// shortText keeps the beginning of a driver's text, and nothing in it that would say something to a terminal.
func shortText(text string) string {
	if len(text) > MaxErrorText {
		text = strings.ToValidUTF8(text[:MaxErrorText], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
