// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The orders: see order.
const (
	opPlug   = "plug"   // wait until the new pod answers at ports 80 and 81
	opSelect = "select" // let the Service select by the labels
	opGone   = "gone"   // wait until the namespace is gone
	opProbe  = "probe"  // call all requests from the pod, each for a second at most
	opCase   = "case"   // a case is over
)

// order is a line of standard output. Each is answered by one line, in any order.
type order struct {
	ID        int               `json:"id"`
	Op        string            `json:"op"`
	Namespace string            `json:"namespace,omitempty"`
	Pod       string            `json:"pod,omitempty"`
	Service   string            `json:"service,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Requests  []*request        `json:"requests,omitempty"`
	Case      *report           `json:"case,omitempty"`
}

// request is one call, in cyclonus' own form.
type request struct {
	Key      string
	Protocol string
	Host     string
	Port     int
}

// result is what became of a request, in cyclonus' own form: without an error it was answered.
type result struct {
	Request *request
	Output  string
	Error   string
}

// answer is a line of standard input.
type answer struct {
	ID      int       `json:"id"`
	Error   string    `json:"error,omitempty"`
	Results []*result `json:"results,omitempty"`
}

// report is how a case went.
type report struct {
	Number       int      `json:"number"`
	Of           int      `json:"of"`
	Mode         string   `json:"mode"`
	Description  string   `json:"description"`
	Tags         []string `json:"tags"`
	Passed       bool     `json:"passed"`
	Tries        []int    `json:"tries"` // of each step
	Probes       int      `json:"probes"`
	Wrong        []string `json:"wrong,omitempty"`
	Milliseconds int64    `json:"milliseconds"`
}

// caller sends orders, from any goroutine, and gives each its answer.
type caller struct {
	mu      sync.Mutex
	out     *json.Encoder
	last    int
	waiting map[int]chan answer
	ended   error
}

func newCaller(out io.Writer, in *bufio.Reader) *caller {
	c := &caller{out: json.NewEncoder(out), waiting: map[int]chan answer{}}
	go c.listen(json.NewDecoder(in))
	return c
}

func (c *caller) listen(in *json.Decoder) {
	for {
		var a answer
		err := in.Decode(&a)
		c.mu.Lock()
		if err != nil {
			c.ended = fmt.Errorf("no more answers: %w", err)
			for _, to := range c.waiting {
				close(to)
			}
			c.waiting = nil
			c.mu.Unlock()
			return
		}
		to := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
}

func (c *caller) call(o order) (answer, error) {
	to := make(chan answer, 1)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return answer{}, c.ended
	}
	c.last++
	o.ID = c.last
	c.waiting[o.ID] = to
	err := c.out.Encode(o)
	c.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	a, ok := <-to
	switch {
	case !ok:
		return a, c.ended
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}
