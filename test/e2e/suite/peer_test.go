// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// peerPort is where every nic answers with its pod's name, by TCP and by UDP.
const peerPort = "8080"

// otherPort is where every nic answers by TCP with its pod's name and the port.
const otherPort = "8081"

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
	case "answer": // PORT ...: answers questions at these ports, by TCP and UDP, until it is killed
		return true, answerAt(strings.Fields(argument))
	case "batch": // calls what standard input says, all at once, and prints what became of it
		return true, batch()
	case "flow": // PROTOCOL ADDRESS: a question every 20 ms from one port, and a line for each answer, until it is killed
		protocol, address, _ := strings.Cut(argument, " ")
		return true, flow(protocol, address)
	case "probe": // PROTOCOL ADDRESS: a call every 10 ms, each from a port of its own; a line for each and for each answer
		protocol, address, _ := strings.Cut(argument, " ")
		return true, probe(protocol, address)
	case "seen": // PROTOCOL ADDRESS: as whom the one who answers sees this client
		protocol, address, _ := strings.Cut(argument, " ")
		text, err := ask(protocol, address)
		if err != nil {
			text = err.Error() + "\n"
		}
		fmt.Print(text)
		return true, exitStatus(err)
	case "first": // ADDRESS NAME: when that name answered first
		address, name, _ := strings.Cut(argument, " ")
		return true, first(address, name)
	}
	return false, 0
}

func exitStatus(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// flow is one flow of datagrams or one connection, so dense that nothing forgets it. What fails, such as a refusal,
// is no end of it; a connection that is cut is not made again.
func flow(protocol, address string) int {
	c, err := net.Dial(protocol, address)
	if err != nil {
		fmt.Println("!", err)
		return 1
	}
	go func() {
		buffer := make([]byte, 300)
		for {
			n, err := c.Read(buffer)
			if err == nil {
				fmt.Print(string(buffer[:n]))
			} else if protocol == "tcp" {
				return
			}
		}
	}()
	for {
		if _, err := io.WriteString(c, "?"); err != nil && protocol == "tcp" {
			fmt.Println("!", err)
			return 1
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// probe calls until it is killed.
func probe(protocol, address string) int {
	for {
		fmt.Println("sent")
		go func() {
			if _, err := dial(protocol, address); err == nil {
				fmt.Println("answered")
			}
		}()
		time.Sleep(10 * time.Millisecond)
	}
}

// serve answers whoever calls with a name, until it is killed: who connects at once, and everybody for each question.
// To the question who it adds the caller's address.
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
	other, err := net.Listen("tcp", ":"+otherPort)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listening")
	go accept(other, name+":"+otherPort)
	go echo(datagrams, name)
	return accept(listener, name)
}

// echo answers each datagram.
func echo(datagrams net.PacketConn, name string) {
	buffer := make([]byte, 100)
	for {
		n, from, err := datagrams.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = datagrams.WriteTo([]byte(reply(name, string(buffer[:n]), from)), from)
	}
}

func accept(listener net.Listener, name string) int {
	for {
		c, err := listener.Accept()
		if err != nil {
			return 1
		}
		go converse(c, name)
	}
}

const whoAmI = "who"

func reply(name, question string, from net.Addr) string {
	if question == whoAmI {
		name += " " + from.String()
	}
	return name + "\n"
}

// converse answers one that has connected until he ends it.
func converse(c net.Conn, name string) {
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, name+"\n")
	buffer := make([]byte, 100)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, reply(name, string(buffer[:n]), c.RemoteAddr()))
	}
}

// ask returns the caller's address as the one sees it who answers.
func ask(protocol, address string) (string, error) {
	c, err := net.DialTimeout(protocol, address, 1500*time.Millisecond)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(1500 * time.Millisecond))
	lines := bufio.NewReader(c)
	if protocol == "tcp" { // the greeting
		if _, err := lines.ReadString('\n'); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(c, whoAmI); err != nil {
		return "", err
	}
	line, err := lines.ReadString('\n')
	_, text, _ := strings.Cut(line, " ")
	return text, err
}

// dial calls once, from a port of its own, and returns the answer.
func dial(protocol, address string) (string, error) {
	return dialWithin(1500*time.Millisecond, protocol, address)
}

// dialWithin is dial that waits so long for the connection and then for the answer.
func dialWithin(bound time.Duration, protocol, address string) (string, error) {
	c, err := net.DialTimeout(protocol, address, bound)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(bound))
	if protocol == "udp" {
		if _, err := io.WriteString(c, "?"); err != nil {
			return "", err
		}
	}
	buffer := make([]byte, 300)
	n, err := c.Read(buffer)
	return string(buffer[:n]), err
}

// seen waits until an address answers, and returns the client's own as the one sees it who does.
func (n *nic) seen(t *testing.T, protocol, address string) string {
	t.Helper()
	var as string
	await(t, fmt.Sprintf("%s to be told its address at %s by %s", n.pod, address, protocol),
		func(ctx context.Context) string {
			out, err := n.run(ctx, fmt.Sprintf("seen %s %s", protocol, net.JoinHostPort(address, "80"))).CombinedOutput()
			if err != nil {
				return fmt.Sprintf("%v: %s", err, out)
			}
			as, _, err = net.SplitHostPort(strings.TrimSpace(string(out)))
			if err != nil {
				return err.Error()
			}
			return ""
		})
	return as
}
