// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"k8s.io/utils/clock"
)

// Reach is whether a service could be asked at the last attempt.
type Reach struct {
	// Asked says that there was an attempt that ended.
	Asked bool
	// Problem is why it could not be asked: no answer, that of a server in trouble, or refused credentials. Empty: it
	// could.
	Problem string
	// Since is when that began.
	Since time.Time
}

// reach follows the attempts of one service.
type reach struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last Reach
}

// note takes in what came of an attempt. A refusal is an answer, but for one of the credentials; what the caller broke
// off says nothing.
func (r *reach) note(err error) {
	problem := ""
	var reauth *gophercloud.ErrUnableToReauthenticate
	var failure *Error
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled), errors.Is(err, ErrFenced), errors.Is(err, ErrClosed), errors.As(err, &reauth):
		return
	case !errors.As(err, &failure):
		problem = brief(err)
	case failure.Status == 0 || failure.Status >= http.StatusInternalServerError, failure.Class == ClassUnauthorized:
		problem = failure.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.Asked || (r.last.Problem == "") != (problem == "") {
		r.last.Since = r.clock.Now()
	}
	r.last.Asked, r.last.Problem = true, problem
}

func (r *reach) get() Reach {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Reach says whether the service could be asked at the last attempt.
func (s *Service) Reach() Reach { return s.reach.get() }

// Identity says whether Keystone could be asked at the last attempt, which is made when a token is needed.
func (c *Connection) Identity() Reach { return c.identity.get() }
