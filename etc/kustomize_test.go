// SPDX-License-Identifier: Apache-2.0

package etc_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// manifests reads every document of etc/kustomize, strictly: an unknown or doubled field is an error.
func manifests(t *testing.T) map[string]metav1.Object {
	t.Helper()
	kinds := map[string]func() metav1.Object{
		"v1 Namespace":                  func() metav1.Object { return &corev1.Namespace{} },
		"v1 ServiceAccount":             func() metav1.Object { return &corev1.ServiceAccount{} },
		"v1 ConfigMap":                  func() metav1.Object { return &corev1.ConfigMap{} },
		"v1 Secret":                     func() metav1.Object { return &corev1.Secret{} },
		"v1 Service":                    func() metav1.Object { return &corev1.Service{} },
		"apps/v1 Deployment":            func() metav1.Object { return &appsv1.Deployment{} },
		"apps/v1 DaemonSet":             func() metav1.Object { return &appsv1.DaemonSet{} },
		"policy/v1 PodDisruptionBudget": func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": func() metav1.Object {
			return &admissionv1.ValidatingAdmissionPolicy{}
		},
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": func() metav1.Object {
			return &admissionv1.ValidatingAdmissionPolicyBinding{}
		},
		"rbac.authorization.k8s.io/v1 ClusterRole":        func() metav1.Object { return &rbacv1.ClusterRole{} },
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() metav1.Object { return &rbacv1.ClusterRoleBinding{} },
		"rbac.authorization.k8s.io/v1 Role":               func() metav1.Object { return &rbacv1.Role{} },
		"rbac.authorization.k8s.io/v1 RoleBinding":        func() metav1.Object { return &rbacv1.RoleBinding{} },
	}
	files, err := filepath.Glob("kustomize/[0-9]*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d manifests (%v)", len(files), err)
	}
	found := map[string]metav1.Object{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kind := meta.APIVersion + " " + meta.Kind
			if kinds[kind] == nil {
				t.Fatalf("%s: this test does not know %s", file, kind)
			}
			object := kinds[kind]()
			if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
				t.Errorf("%s: %s: %v", file, kind, err)
			}
			name := meta.Kind + " " + object.GetName()
			if found[name] != nil {
				t.Errorf("%s: %s is there twice", file, name)
			}
			found[name] = object
		}
	}
	return found
}

func get[T any](t *testing.T, all map[string]metav1.Object, name string) T {
	t.Helper()
	object, ok := all[name].(T)
	if !ok {
		t.Fatalf("there is no %s, but %v", name, slices.Sorted(maps.Keys(all)))
	}
	return object
}

// What one manifest names is in another.
func TestManifestsFitTogether(t *testing.T) {
	all := manifests(t)
	deployment := get[*appsv1.Deployment](t, all, "Deployment raven")
	pod := deployment.Spec.Template
	for name, object := range all {
		cluster := strings.HasPrefix(name, "Cluster") || strings.HasPrefix(name, "Namespace") ||
			strings.HasPrefix(name, "ValidatingAdmissionPolicy")
		if want := map[bool]string{true: "", false: "raven"}[cluster]; object.GetNamespace() != want {
			t.Errorf("%s is in namespace %q", name, object.GetNamespace())
		}
	}
	account := get[*corev1.ServiceAccount](t, all, "ServiceAccount "+pod.Spec.ServiceAccountName)
	for _, subjects := range [][]rbacv1.Subject{
		get[*rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding raven").Subjects,
		get[*rbacv1.RoleBinding](t, all, "RoleBinding raven").Subjects,
	} {
		if len(subjects) != 1 || subjects[0].Name != account.Name || subjects[0].Namespace != account.Namespace {
			t.Errorf("a role is bound to %+v", subjects)
		}
	}
	sources := pod.Spec.Volumes[0].Projected.Sources
	for _, item := range sources[0].ConfigMap.Items {
		if get[*corev1.ConfigMap](t, all, "ConfigMap "+sources[0].ConfigMap.Name).Data[item.Key] == "" {
			t.Errorf("the ConfigMap has no %s", item.Key)
		}
	}
	for _, item := range sources[1].Secret.Items {
		if get[*corev1.Secret](t, all, "Secret "+sources[1].Secret.Name).StringData[item.Key] == "" {
			t.Errorf("the Secret has no %s", item.Key)
		}
	}
	labels := pod.Labels
	for _, selector := range []map[string]string{
		deployment.Spec.Selector.MatchLabels,
		get[*policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget raven").Spec.Selector.MatchLabels,
		get[*corev1.Service](t, all, "Service raven-metrics").Spec.Selector,
		pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels,
	} {
		for key, value := range selector {
			if labels[key] != value {
				t.Errorf("a selector wants %s=%s, which the pod does not have", key, value)
			}
		}
	}
}

// The policy lets those write who are Raven and nodes' daemons by the other manifests.
func TestPolicyNamesTheAccounts(t *testing.T) {
	all := manifests(t)
	policy := get[*admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy raven-annotations")
	binding := get[*admissionv1.ValidatingAdmissionPolicyBinding](t, all,
		"ValidatingAdmissionPolicyBinding raven-annotations")
	if binding.Spec.PolicyName != policy.Name {
		t.Errorf("the binding is of %s", binding.Spec.PolicyName)
	}
	users := map[string]string{}
	for _, v := range policy.Spec.Variables {
		users[v.Name] = v.Expression
	}
	deployment := get[*appsv1.Deployment](t, all, "Deployment raven")
	daemons := get[*appsv1.DaemonSet](t, all, "DaemonSet raven-node")
	for variable, account := range map[string]string{
		"raven":     deployment.Namespace + ":" + deployment.Spec.Template.Spec.ServiceAccountName,
		"ravenNode": daemons.Namespace + ":" + daemons.Spec.Template.Spec.ServiceAccountName,
	} {
		if want := "['system:serviceaccount:" + account + "']"; users[variable] != want {
			t.Errorf("variable %s is %s, want %s", variable, users[variable], want)
		}
	}
}

// A node's daemon must start on a node that has no network, beside a Raven, and see what it is configured for.
func TestDaemonSetStartsOnANewNode(t *testing.T) {
	all := manifests(t)
	pod := get[*appsv1.DaemonSet](t, all, "DaemonSet raven-node").Spec.Template.Spec
	container := pod.Containers[0]
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault {
		t.Errorf("hostNetwork %t, dnsPolicy %s", pod.HostNetwork, pod.DNSPolicy)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("it does not tolerate every taint: %v", pod.Tolerations)
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe,
	} {
		if probe == nil || probe.HTTPGet.Host != "127.0.0.1" {
			t.Errorf("the %s probe does not ask on 127.0.0.1, where the daemon answers", name)
		}
	}
	conf := get[*corev1.ConfigMap](t, all, "ConfigMap raven-node").Data["kuryr.conf"]
	if !strings.Contains(conf, "\napi_root = https://") || strings.Contains(conf, "kubernetes.default") {
		t.Error("the configuration does not name the API server itself")
	}
	ports := get[*appsv1.Deployment](t, all, "Deployment raven").Spec.Template.Spec.Containers[0].Ports
	for _, port := range container.Ports {
		if !strings.Contains(conf, fmt.Sprintf("port = %d\n", port.HostPort)) {
			t.Errorf("the configuration does not have the port %d", port.HostPort)
		}
		if slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.HostPort == port.HostPort }) {
			t.Errorf("a Raven on the same node has the port %d", port.HostPort)
		}
	}
	mounted := map[string]bool{}
	for _, m := range container.VolumeMounts {
		mounted[m.MountPath] = true
	}
	for _, path := range []string{
		"/run/openvswitch", "/run/raven-node", "/run/netns", "/var/run/netns", "/etc/cni/net.d", "/opt/cni/bin",
	} {
		if !mounted[path] {
			t.Errorf("%s of the node is not mounted", path)
		}
	}
}

// Of the two, one may be evicted at a time, by a drain as by an update; and one may, or no node could be drained.
func TestOneIsLeftWhenNodesAreDrained(t *testing.T) {
	all := manifests(t)
	deployment := get[*appsv1.Deployment](t, all, "Deployment raven")
	budget := get[*policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget raven").Spec
	most := budget.MaxUnavailable.IntValue()
	if budget.MinAvailable != nil || most < 1 || most >= int(*deployment.Spec.Replicas) {
		t.Errorf("of %d may be evicted: %+v", *deployment.Spec.Replicas, budget)
	}
	if update := deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(); update != most {
		t.Errorf("an update makes %d unavailable", update)
	}
}

// It must start on a cluster that has no network, no DNS and no Services: what makes those is this.
func TestDeploymentStartsOnAColdCluster(t *testing.T) {
	all := manifests(t)
	deployment := get[*appsv1.Deployment](t, all, "Deployment raven")
	pod := deployment.Spec.Template.Spec
	if *deployment.Spec.Replicas != 2 || !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault {
		t.Errorf("%d replicas, hostNetwork %t, dnsPolicy %s", *deployment.Spec.Replicas, pod.HostNetwork, pod.DNSPolicy)
	}
	for _, taint := range []corev1.Taint{
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule, Value: "true"},
	} {
		tolerates := func(t corev1.Toleration) bool {
			return t.Key == taint.Key && t.Operator == corev1.TolerationOpExists && t.Effect == taint.Effect
		}
		if !slices.ContainsFunc(pod.Tolerations, tolerates) {
			t.Errorf("the taint %s:%s is not tolerated", taint.Key, taint.Effect)
		}
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": pod.Containers[0].StartupProbe, "liveness": pod.Containers[0].LivenessProbe,
		"readiness": pod.Containers[0].ReadinessProbe,
	} {
		if probe == nil || probe.HTTPGet.Host != "127.0.0.1" {
			t.Errorf("the %s probe does not ask on 127.0.0.1, where Raven answers", name)
		}
	}
	conf := get[*corev1.ConfigMap](t, all, "ConfigMap raven").Data["kuryr.conf"]
	if !strings.Contains(conf, "\napi_root = https://") || strings.Contains(conf, "kubernetes.default") {
		t.Error("the configuration does not name the API server itself")
	}
	if grace := *pod.TerminationGracePeriodSeconds; grace <= 60+10 {
		t.Errorf("the kubelet kills after %d s what still stops by its own rules", grace)
	}
}
