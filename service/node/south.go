// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"strings"
	"sync"

	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/service/ovn/southbound"
	"github.com/kuryr/raven/service/ovsdb"
)

// south asks the southbound database that Open vSwitch's external_ids name.
type south struct {
	mu     sync.Mutex // guards what follows
	of     openvswitch.Chassis
	client *southbound.Client
}

// binding returns what the southbound database has of a port.
func (s *south) binding(ctx context.Context, ovs *openvswitch.Switch, port string) (southbound.Binding, error) {
	view, _, err := ovs.View()
	if err != nil {
		return southbound.Binding{}, &southbound.UnavailableError{Err: err}
	}
	return s.clientOf(view.Chassis).Binding(ctx, port)
}

// clientOf returns the client of a southbound database; it is another one when external_ids have changed.
func (s *south) clientOf(c openvswitch.Chassis) *southbound.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil && s.of == c {
		return s.client
	}
	if s.client != nil {
		s.client.Close()
	}
	s.of, s.client = c, southbound.New(southbound.Config{
		Endpoints: strings.FieldsFunc(c.Remote, func(r rune) bool { return r == ',' }),
		TLS: ovsdb.TLS{
			PrivateKey: c.PrivateKey, Certificate: c.Certificate, CACert: c.CACert,
			KeyOption: "private_key of Open vSwitch's SSL", CertificateOption: "certificate of Open vSwitch's SSL",
			CACertOption: "ca_cert of Open vSwitch's SSL",
		},
	})
	return s.client
}

func (s *south) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
	}
}

// southboundAnswers notes that owners are checked.
func (n *Node) southboundAnswers() {
	n.mu.Lock()
	warned := n.warned
	n.warned = false
	n.mu.Unlock()
	if warned {
		n.log.Info("owners of ports are checked again")
	}
}

// southboundUnavailable logs once, until the database answers again, that owners cannot be checked.
func (n *Node) southboundUnavailable(err error) {
	n.mu.Lock()
	warned := n.warned
	n.warned = true
	n.mu.Unlock()
	if !warned {
		n.log.Warn("owners of ports are not checked: [node] southbound_check", "error", err)
	}
}
