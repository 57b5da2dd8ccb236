//go:build e2e

package suite

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// peerPort is where every nic answers with its pod's name, by TCP and by UDP.
const peerPort = "8080"

// peer is the part of this program that runs inside of a network namespace; it says whether it was that.
func peer() (bool, int) {
	verb, argument, _ := strings.Cut(os.Getenv("RAVEN_E2E_PEER"), " ")
	switch verb {
	case "serve":
		return true, serve(argument)
	case "dial":
		text, err := dial("tcp", argument)
		if err != nil {
			text = err.Error() + "\n"
		}
		fmt.Print(text)
		return true, exitStatus(err)
	case "calls": // PROTOCOL ADDRESS HOW-MANY: a line for each
		words := strings.Fields(argument)
		n, err := strconv.Atoi(words[2])
		for range n {
			text, err := dial(words[0], words[1])
			if err != nil {
				text = "! " + err.Error() + "\n"
			}
			fmt.Print(text)
		}
		return true, exitStatus(err)
	case "flow": // ADDRESS: datagrams from one port, and a line for each answer, until it is killed
		return true, flow(argument)
	}
	return false, 0
}

func exitStatus(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// flow is one flow of datagrams, so dense that nothing forgets it. What fails, such as a refusal, is no end of it.
func flow(address string) int {
	c, err := net.Dial("udp", address)
	if err != nil {
		fmt.Println("!", err)
		return 1
	}
	go func() {
		buffer := make([]byte, 300)
		for {
			if n, err := c.Read(buffer); err == nil {
				fmt.Print(string(buffer[:n]))
			}
		}
	}()
	for {
		_, _ = io.WriteString(c, "?")
		time.Sleep(20 * time.Millisecond)
	}
}

// serve answers whoever calls with a name, until it is killed.
func serve(name string) int {
	listener, err := net.Listen("tcp", ":"+peerPort)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	datagrams, err := net.ListenPacket("udp", ":"+peerPort)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listening")
	go func() {
		buffer := make([]byte, 100)
		for {
			_, from, err := datagrams.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = datagrams.WriteTo([]byte(name+"\n"), from)
		}
	}()
	for {
		c, err := listener.Accept()
		if err != nil {
			return 1
		}
		_, _ = io.WriteString(c, name+"\n")
		_ = c.Close()
	}
}

// dial calls once, from a port of its own, and returns the answer.
func dial(protocol, address string) (string, error) {
	c, err := net.DialTimeout(protocol, address, 1500*time.Millisecond)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(1500 * time.Millisecond))
	if protocol == "udp" {
		if _, err := io.WriteString(c, "?"); err != nil {
			return "", err
		}
	}
	buffer := make([]byte, 300)
	n, err := c.Read(buffer)
	return string(buffer[:n]), err
}

// calls calls an address that often, and returns how often each answer came; what failed begins with "!".
func (n *nic) calls(ctx context.Context, protocol, address string, times int) (map[string]int, error) {
	out, err := n.run(ctx, fmt.Sprintf("calls %s %s %d", protocol, address, times)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s calls %s: %w: %s", n.pod, address, err, out)
	}
	answers := map[string]int{}
	for line := range strings.Lines(string(out)) {
		answers[strings.TrimSpace(line)]++
	}
	return answers, nil
}
