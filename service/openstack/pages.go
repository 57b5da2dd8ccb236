// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/service/plan"
)

const (
	pageSize = 1000
	// listTries is how often a list is begun again because the resource where a page ended was deleted in between.
	listTries = 4
)

// Observe makes of a service's document what the plan compares.
type Observe func(doc map[string]any) plan.Observed

// Pages lists a collection to the end, makes resources of the documents, and keeps what is wanted. Pages are asked for
// by marker, not by the links in the answer, whose scheme and host are often those behind a proxy.
func (s *Service) Pages(
	ctx context.Context, c Collection, query url.Values, observe Observe, keep func(plan.Observed) bool,
) ([]plan.Observed, error) {
	var err error
	for range listTries {
		var found []plan.Observed
		var restart bool
		found, restart, err = s.pagesOnce(ctx, c, query, observe, keep)
		if err == nil || !restart {
			return found, err
		}
	}
	return nil, err
}

func (s *Service) pagesOnce(
	ctx context.Context, c Collection, query url.Values, observe Observe, keep func(plan.Observed) bool,
) (found []plan.Observed, restart bool, err error) {
	query = maps.Clone(query)
	query.Set("limit", strconv.Itoa(pageSize))
	seen := map[string]bool{}
	for {
		r := Call{Op: OpList, Method: http.MethodGet, Collection: c, Path: c.Path, Query: query}
		doc, err := s.Do(ctx, r)
		if err != nil {
			gone := query.Has("marker") && (Classify(err) == ClassNotFound || Classify(err) == ClassTerminal)
			return nil, gone, err
		}
		docs, err := c.List(doc)
		if err != nil {
			return nil, false, NewError(r, err, true)
		}
		last := ""
		for _, doc := range docs {
			o := observe(doc)
			if last = o.ID; last == "" {
				return nil, false, NewError(r, fmt.Errorf("the list %q holds a resource without id", c.Many), true)
			}
			if !seen[o.ID] && keep(o) {
				found = append(found, o)
			}
			seen[o.ID] = true
		}
		if len(docs) == 0 || !hasNext(doc, c) {
			return found, false, nil
		}
		if query.Get("marker") == last {
			return nil, false, NewError(r, fmt.Errorf("the server repeats the page after %s", last), true)
		}
		query.Set("marker", last)
	}
}

func hasNext(doc map[string]any, c Collection) bool {
	links, _ := doc[c.Many+"_links"].([]any)
	for _, link := range links {
		if l, ok := link.(map[string]any); ok && l["rel"] == "next" {
			return true
		}
	}
	return false
}

// FirstPage lists a few, for people.
func (s *Service) FirstPage(
	ctx context.Context, c Collection, query url.Values, observe Observe,
) ([]plan.Observed, error) {
	query = maps.Clone(query)
	query.Set("limit", "20")
	r := Call{Op: OpList, Method: http.MethodGet, Collection: c, Path: c.Path, Query: query}
	doc, err := s.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	docs, err := c.List(doc)
	if err != nil {
		return nil, NewError(r, err, true)
	}
	found := make([]plan.Observed, 0, len(docs))
	for _, doc := range docs {
		found = append(found, observe(doc))
	}
	return found, nil
}

// Lookup returns one resource by id or, where none has that id, by name. It may belong to another project that shares
// it. None is ClassNotFound; several of one name are ClassTerminal.
func (s *Service) Lookup(ctx context.Context, c Collection, observe Observe, idOrName string) (plan.Observed, error) {
	found, err := s.Pages(ctx, c, url.Values{"id": {idOrName}}, observe, Everything)
	if err == nil && len(found) == 0 {
		found, err = s.Pages(ctx, c, url.Values{"name": {idOrName}}, observe, Everything)
	}
	if err != nil {
		return plan.Observed{}, err
	}
	missed := &Error{Op: "looking up", Kind: c.Kind, What: idOrName}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		missed.Class, missed.Message = ClassNotFound, "nothing that these credentials can see has this id or name"
	default:
		ids := make([]string, 0, len(found))
		for _, o := range found {
			ids = append(ids, o.ID)
		}
		slices.Sort(ids)
		missed.Class = ClassTerminal
		missed.Message = fmt.Sprintf("%d have this name (%s): give the id", len(ids), OneLine(strings.Join(ids, ", ")))
	}
	return plan.Observed{}, missed
}

// Everything keeps all that a list has.
func Everything(plan.Observed) bool { return true }
