// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/writeback"
)

func newDriverRBACCommand(flags *globalFlags, io streams) *cobra.Command {
	var account rbacAccount
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the ServiceAccount and the roles that Raven needs in the cluster with the enabled drivers, and no more",
		Long: `Print, as a manifest, the ServiceAccount and the roles that Raven needs in the cluster: what the enabled
drivers watch and write under this configuration, and what Raven itself does. Neither the cluster nor the cloud is
asked.`,
		Example: `  raven driver rbac | kubectl apply -f -
  raven driver rbac --set raven.drivers=namespace,pod,lbaas`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDriverRBAC(cmd.Context(), flags, io, account)
		},
	}
	cmd.Flags().StringVar(&account.name, "name", "raven", "`name` of the ServiceAccount and of the roles")
	cmd.Flags().StringVar(&account.namespace, "namespace", "raven", "`namespace` of the ServiceAccount, which must exist")
	return cmd
}

// rbacAccount is whom the rights are for.
type rbacAccount struct{ name, namespace string }

func runDriverRBAC(ctx context.Context, flags *globalFlags, io streams, account rbacAccount) error {
	l, err := flags.loader().Load(ctx)
	if err != nil {
		return err
	}
	warn(io, l.Warnings)
	n, err := neededRights(ctx, l, account)
	if err != nil {
		return err
	}
	for i, object := range account.manifest(n) {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encoding the roles: %w", err)
		}
		if i > 0 {
			fmt.Fprintln(io.out, "---")
		}
		fmt.Fprint(io.out, string(text))
	}
	return nil
}

// neededRights are what Raven needs in the cluster under a configuration.
func neededRights(ctx context.Context, l *daemon.Settings, account rbacAccount) (rights, error) {
	n := rights{}
	for _, p := range l.Programs {
		watches, err := l.Watches(ctx, p)
		if err != nil {
			return nil, err
		}
		n.driver(p.Info, watches)
	}
	if l.Values.String(daemon.OptionGroup, "cluster_id") == "" {
		n.add("", right{"", "namespaces", "kube-system"}, "get")
	}
	if !writeback.EventsDisabled(l.Values) {
		n.add("", right{"", "events", ""}, "create", "patch")
	}
	space := l.Values.String("kubernetes", "lease_namespace")
	switch {
	case space != "":
	case l.Values.String("kubernetes", "kubeconfig") != "" || l.Values.String("kubernetes", "context") != "":
		// Raven does not run in a pod.
		space = leader.NamespaceOutside
	default:
		space = account.namespace
	}
	n.add(space, right{"coordination.k8s.io", "leases", ""}, "create") // which no rule can limit by name
	n.add(space, right{"coordination.k8s.io", "leases", l.Values.String("kubernetes", "lease_name")}, "get", "update")
	return n, nil
}

// list returns the rights one by one, as the API server is asked for them.
func (n rights) list() []authorizationv1.ResourceAttributes {
	var list []authorizationv1.ResourceAttributes
	for namespace, of := range n {
		for on, verbs := range of {
			resource, sub, _ := strings.Cut(on.resource, "/")
			for _, verb := range ordered(verbs) {
				list = append(list, authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: on.group, Resource: resource, Subresource: sub, Name: on.name,
				})
			}
		}
	}
	slices.SortFunc(list, func(a, b authorizationv1.ResourceAttributes) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Subresource, b.Subresource), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Verb, b.Verb))
	})
	return list
}

// right is what verbs are allowed on: a resource, by all names or by one.
type right struct{ group, resource, name string }

// rights are verbs by namespace, "" being all, and what they are allowed on.
type rights map[string]map[right]map[string]bool

func (n rights) add(namespace string, on right, verbs ...string) {
	if n[namespace] == nil {
		n[namespace] = map[right]map[string]bool{}
	}
	if n[namespace][on] == nil {
		n[namespace][on] = map[string]bool{}
	}
	for _, verb := range verbs {
		n[namespace][on][verb] = true
	}
}

// driver adds what a driver needs: what it watches is listed and watched, what it writes on is patched; a refused patch
// is explained by a look at the object.
func (n rights) driver(info drivers.Info, watches []drivers.Watch) {
	for _, w := range watches {
		on := right{w.GVR.Group, w.GVR.Resource, ""}
		n.add(w.Namespace, on, "list", "watch")
		if !w.Source {
			continue
		}
		if len(info.Annotations)+len(info.Labels) > 0 {
			n.add(w.Namespace, on, "get", "patch")
		}
		if len(info.Status) > 0 && (isServices(w) || !slices.ContainsFunc(watches, isServices)) {
			n.add(w.Namespace, on, "get")
			n.add(w.Namespace, right{w.GVR.Group, w.GVR.Resource + "/status", ""}, "patch")
		}
	}
}

// isServices says whether a watch is the source of Services: the one part of a status that drivers write is theirs, so
// that who has them writes no status of its other sources.
func isServices(w drivers.Watch) bool {
	return w.Source && w.GVR.Group == "" && w.GVR.Resource == "services"
}

// rules are the rights in one namespace, those that are alike in one rule, in an order that is always the same.
func (n rights) rules(namespace string) []rbacv1.PolicyRule {
	alike := map[string]*rbacv1.PolicyRule{}
	for on, allowed := range n[namespace] {
		allowed = maps.Clone(allowed)
		if on.name != "" { // what is allowed by all names need not be said again
			maps.DeleteFunc(allowed, func(verb string, _ bool) bool {
				return n[namespace][right{
					on.group, on.resource,
					"",
				}][verb]
			})
		}
		verbs := ordered(allowed)
		if len(verbs) == 0 {
			continue
		}
		key := strings.Join([]string{on.group, on.name, strings.Join(verbs, " ")}, "|")
		if alike[key] == nil {
			alike[key] = &rbacv1.PolicyRule{APIGroups: []string{on.group}, Verbs: verbs}
			if on.name != "" {
				alike[key].ResourceNames = []string{on.name}
			}
		}
		alike[key].Resources = append(alike[key].Resources, on.resource)
	}
	rules := make([]rbacv1.PolicyRule, 0, len(alike))
	for _, rule := range alike {
		slices.Sort(rule.Resources)
		rules = append(rules, *rule)
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
			slices.Compare(a.Verbs, b.Verbs))
	})
	return rules
}

// ordered lists verbs in the order in which people expect them.
func ordered(verbs map[string]bool) []string {
	var list []string
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch"} {
		if verbs[verb] {
			list = append(list, verb)
		}
	}
	return list
}

// manifest is the account with a role for all namespaces and one for each namespace that has rights of its own.
func (a rbacAccount) manifest(n rights) []any {
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.name, Namespace: a.namespace}}
	kinds := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	refer := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: a.name}
	}
	list := []any{
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: a.name, Namespace: a.namespace},
		},
		&rbacv1.ClusterRole{TypeMeta: kinds("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: a.name}, Rules: n.rules("")},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: kinds("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: a.name}, Subjects: subject,
			RoleRef: refer("ClusterRole"),
		},
	}
	for _, namespace := range slices.Sorted(maps.Keys(n)) {
		if namespace == "" {
			continue
		}
		meta := metav1.ObjectMeta{Name: a.name, Namespace: namespace}
		list = append(list,
			&rbacv1.Role{TypeMeta: kinds("Role"), ObjectMeta: meta, Rules: n.rules(namespace)},
			&rbacv1.RoleBinding{TypeMeta: kinds("RoleBinding"), ObjectMeta: meta, Subjects: subject, RoleRef: refer("Role")},
		)
	}
	return list
}
