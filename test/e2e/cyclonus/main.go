// SPDX-License-Identifier: Apache-2.0

// Command cyclonus runs cyclonus' generated cases of NetworkPolicies on the cluster of KUBECONFIG. It probes through
// the program that started it, since the cluster's pods need no container: each line of its standard output is an
// order, each line of its standard input an answer. See protocol.go.
//
//	cyclonus -every 20 -mode pod-ip
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// tries bounds how often a step is probed until the cluster agrees with cyclonus' truth table, and pace is the least
// time from one try to the next: where all is open a try takes no time.
const (
	tries = 180
	pace  = 500 * time.Millisecond
)

func main() {
	every := flag.Int("every", 1, "run each `n`th case only")
	only := flag.Int("only", 0, "run the case with this `number` only")
	mode := flag.String("mode", generator.ProbeModePodIP, "what probes call: pod-ip or service-ip")
	flag.Parse()
	// cyclonus' own words and tables: standard output is the protocol's.
	orders := os.Stdout
	os.Stdout = os.Stderr
	logrus.SetOutput(os.Stderr)
	logrus.SetLevel(logrus.ErrorLevel)
	if err := run(newCaller(orders, bufio.NewReader(os.Stdin)), generator.ProbeMode(*mode), *every, *only); err != nil {
		fmt.Fprintln(os.Stderr, "cyclonus:", err)
		os.Exit(1)
	}
}

func run(c *caller, mode generator.ProbeMode, every, only int) error {
	client, err := kube.NewKubernetesForContext("")
	if err != nil {
		return err
	}
	client.RestConfig.QPS, client.RestConfig.Burst = 200, 400 // each case sets the labels of all pods again
	if client.ClientSet, err = kubernetes.NewForConfig(client.RestConfig); err != nil {
		return err
	}
	cluster := &cluster{Kubernetes: client, caller: c}
	namespaces := []string{"x", "y", "z"}
	resources, err := probe.NewDefaultResources(cluster, namespaces, []string{"a", "b", "c"}, []int{80, 81},
		[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}, nil, 300, true, "none")
	if err != nil {
		return err
	}
	last, err := resources.GetPod("z", "c")
	if err != nil {
		return err
	}
	interpreter := connectivity.NewInterpreter(cluster, resources, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase: true, VerifyClusterStateBeforeTestCase: true, KubeProbeRetries: tries - 1,
		BatchJobs: true,
		// A pod that calls itself by its own address sends no packet.
		IgnoreLoopback: true, JobTimeoutSeconds: 1,
	})
	cases := generator.NewTestCaseGenerator(true, last.IP, namespaces, nil, nil).GenerateTestCases()
	for i, one := range cases {
		if number := i + 1; only != 0 && number != only || only == 0 && i%every != 0 {
			continue
		}
		for _, step := range one.Steps {
			step.Probe.Mode = mode
		}
		began := time.Now()
		result := interpreter.ExecuteTestCase(one)
		report := judge(result)
		report.Number, report.Of, report.Mode = i+1, len(cases), string(mode)
		report.Milliseconds = time.Since(began).Milliseconds()
		if _, err := c.call(order{Op: opCase, Case: report}); err != nil {
			return err
		}
	}
	return nil
}

// judge says how a case went.
func judge(result *connectivity.Result) *report {
	tags := result.TestCase.Tags.Keys()
	slices.Sort(tags)
	r := &report{Description: result.TestCase.Description, Tags: tags, Passed: result.Err == nil}
	if result.Err != nil {
		r.Wrong = append(r.Wrong, result.Err.Error())
	}
	for i, step := range result.Steps {
		r.Tries = append(r.Tries, len(step.KubeProbes))
		table := step.LastComparison()
		for _, key := range table.Wrapped.Keys() {
			item := table.Get(key.From, key.To)
			r.Probes += len(item.Kube.JobResults)
			if key.From == key.To || item.IsSuccess() {
				continue
			}
			r.Passed = false
			for name, got := range item.Kube.JobResults {
				if want := item.Simulated.JobResults[name]; got.Combined != want.Combined {
					r.Wrong = append(r.Wrong, fmt.Sprintf("step %d: %s to %s at %s is %s and must be %s", i+1, key.From, key.To,
						name, got.Combined, want.Combined))
				}
			}
		}
		if !r.Passed {
			policies, _ := json.Marshal(step.KubePolicies)
			r.Wrong = append(r.Wrong, "policies: "+string(policies))
			return r
		}
	}
	return r
}

// cluster is the API server's, with probes by the caller.
type cluster struct {
	*kube.Kubernetes
	caller *caller
}

// CreatePod also waits until the pod answers.
func (c *cluster) CreatePod(pod *corev1.Pod) (*corev1.Pod, error) {
	no := false
	pod.Spec.AutomountServiceAccountToken = &no
	var made *corev1.Pod
	var err error
	// A new namespace lets nobody in until its service account is there.
	for range 100 {
		if made, err = c.Kubernetes.CreatePod(pod); err == nil || !strings.Contains(err.Error(), "serviceaccount") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	_, err = c.caller.call(order{Op: opPlug, Namespace: pod.Namespace, Pod: pod.Name})
	return made, err
}

// SetPodLabels also lets the pod's Service select it by its new labels, as cyclonus takes for granted.
func (c *cluster) SetPodLabels(namespace, name string, labels map[string]string) (*corev1.Pod, error) {
	pod, err := c.Kubernetes.SetPodLabels(namespace, name, labels)
	if err != nil {
		return nil, err
	}
	_, err = c.caller.call(order{Op: opSelect, Namespace: namespace, Service: serviceOf(namespace, name), Labels: labels})
	return pod, err
}

// DeleteNamespace also waits until it is gone: a later case makes one of that name.
func (c *cluster) DeleteNamespace(name string) error {
	if err := c.Kubernetes.DeleteNamespace(name); err != nil {
		return err
	}
	_, err := c.caller.call(order{Op: opGone, Namespace: name})
	return err
}

// ExecuteRemoteCommand takes one command only, that of cyclonus' worker, whose last word is what to call.
func (c *cluster) ExecuteRemoteCommand(
	namespace, pod, _ string, command []string,
) (out, errors string, failed, err error) {
	var batch struct {
		Requests []*request
	}
	if err := json.Unmarshal([]byte(command[len(command)-1]), &batch); err != nil {
		return "", "", nil, err
	}
	for _, r := range batch.Requests {
		if r.Host != "" && r.Host != "TODO" {
			continue
		}
		// cyclonus forgets the clusterIP of a pod that it made or labelled in the case: CONTAINER/TO-NAMESPACE/TO-POD.
		words := strings.Split(r.Key, "/")
		service, err := c.GetService(words[3], serviceOf(words[3], words[4]))
		if err != nil {
			return "", "", nil, err
		}
		r.Host = service.Spec.ClusterIP
	}
	next := time.After(pace)
	answer, err := c.caller.call(order{Op: opProbe, Namespace: namespace, Pod: pod, Requests: batch.Requests})
	<-next
	if err != nil {
		return "", "", nil, err
	}
	text, err := json.Marshal(answer.Results)
	return string(text), "", nil, err
}

func serviceOf(namespace, pod string) string { return "s-" + namespace + "-" + pod }
