// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"

	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// Code is the class of an Error.
type Code string

// The classes; see ErrorCode in the proto.
const (
	Terminal  Code = "terminal"
	Panic     Code = "panic"
	Deadline  Code = "deadline"
	Cancelled Code = "cancelled"
	Invalid   Code = "invalid"
)

// Error is why a driver has no Set for one object. errors.Is finds context.DeadlineExceeded and context.Canceled in
// those of class Deadline and Cancelled.
type Error struct {
	Code    Code
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Is implements what errors.Is asks for.
func (e *Error) Is(target error) bool {
	return (e.Code == Deadline && target == context.DeadlineExceeded) ||
		(e.Code == Cancelled && target == context.Canceled)
}

// LostError says that the driver ended while it had this object in hand. It is ErrUnavailable, too.
type LostError struct{ err error }

// Error implements error.
func (l *LostError) Error() string { return l.err.Error() }

// Unwrap is for errors.Is.
func (l *LostError) Unwrap() error { return l.err }

func errorToProto(err error) *ravenv1.TranslateError {
	code := ravenv1.ErrorCode_ERROR_CODE_TERMINAL
	var known *Error
	switch {
	case errors.As(err, &known):
		code = map[Code]ravenv1.ErrorCode{
			Panic: ravenv1.ErrorCode_ERROR_CODE_PANIC, Deadline: ravenv1.ErrorCode_ERROR_CODE_DEADLINE,
			Cancelled: ravenv1.ErrorCode_ERROR_CODE_CANCELLED, Invalid: ravenv1.ErrorCode_ERROR_CODE_INVALID,
			Terminal: ravenv1.ErrorCode_ERROR_CODE_TERMINAL,
		}[known.Code]
	case errors.Is(err, context.DeadlineExceeded):
		code = ravenv1.ErrorCode_ERROR_CODE_DEADLINE
	case errors.Is(err, context.Canceled):
		code = ravenv1.ErrorCode_ERROR_CODE_CANCELLED
	}
	return &ravenv1.TranslateError{Code: code, Message: err.Error()}
}

func errorFromProto(message *ravenv1.TranslateError) *Error {
	out := &Error{Code: Terminal, Message: shortText(message.GetMessage())}
	switch message.GetCode() {
	case ravenv1.ErrorCode_ERROR_CODE_PANIC:
		out.Code = Panic
	case ravenv1.ErrorCode_ERROR_CODE_DEADLINE:
		out.Code = Deadline
	case ravenv1.ErrorCode_ERROR_CODE_CANCELLED:
		out.Code = Cancelled
	case ravenv1.ErrorCode_ERROR_CODE_INVALID:
		out.Code = Invalid
	case ravenv1.ErrorCode_ERROR_CODE_UNSPECIFIED, ravenv1.ErrorCode_ERROR_CODE_TERMINAL:
	}
	return out
}
