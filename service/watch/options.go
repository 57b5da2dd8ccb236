// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuryr/raven/service/config"
)

const (
	group         = "kubernetes"
	inClusterPath = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

// Options are the options of [kubernetes] that say how the API server is reached.
func Options() []config.Option {
	options := []config.Option{
		{
			Name: "kubeconfig",
			Help: "Path of a kubeconfig file. When neither this nor api_root is set, the files that kubectl reads are used " +
				"(KUBECONFIG, ~/.kube/config), then the service account of the pod that Raven runs in, then the default of " +
				"api_root.",
		},
		{Name: "context", Help: "Name of the kubeconfig's context to use. The default is its current context."},
		{
			Name: "api_root", Type: config.URI, Schemes: []string{"http", "https"}, Default: "https://localhost:6443",
			Env:        []string{"K8S_API"},
			Deprecated: []config.Name{{Group: "k8s", Name: "api_root"}},
			Help: "URL of the Kubernetes API server. Set, it is used with the ssl_* options and token_file; it is an " +
				"error to set kubeconfig or context as well.",
		},
		{
			Name: "ssl_client_crt_file",
			Help: "Path of the client certificate (PEM) for api_root.",
		},
		{
			Name: "ssl_client_key_file",
			Help: "Path of the client certificate's key (PEM) for api_root.",
		},
		{
			Name: "ssl_ca_crt_file", Default: inClusterPath + "ca.crt",
			Help: "Path of the certificates (PEM) of the authorities that api_root's certificate may come from. Without " +
				"such a file, the system's authorities count. That the file of the default is missing is no error.",
		},
		{
			Name: "ssl_verify_server_crt", Type: config.Boolean, Default: "True",
			Help: "Verify the certificate of api_root. Turn this off for trials only.",
		},
		{
			Name: "token_file", Default: inClusterPath + "token",
			Help: "Path of the bearer token for api_root; it is read again when it changes. That the file of the default is " +
				"missing is no error. The default's token is not sent over plain HTTP.",
		},
		{
			Name: "watch_retry_timeout", Type: config.Duration, Default: "60", Min: new(1.0),
			Help: "Seconds to wait for the first list of what a driver watches before it is said to fail. The start goes on " +
				"being tried.",
		},
	}
	for i := range options {
		options[i].Group, options[i].Declarer = group, "kuryr.raven"
	}
	return options
}

// SyncTimeout returns the configured Config.SyncTimeout.
func SyncTimeout(values *config.Values) time.Duration {
	return values.Duration(group, "watch_retry_timeout")
}

// RESTConfig returns how to reach the API server that the options name. version goes into the user agent. Its errors
// name the option, or the file, at fault.
func RESTConfig(values *config.Values, version string) (*rest.Config, error) {
	root := values.Origin(group, "api_root")
	byRoot := root.Source != config.FromDefault && root.Source != config.Unset
	byFile := values.String(group, "kubeconfig") != "" || values.String(group, "context") != ""
	var loaded *rest.Config
	var err error
	switch {
	case byRoot && byFile:
		return nil, fmt.Errorf("[kubernetes] api_root (%s) and kubeconfig or context are both set: set one of them", root)
	case byRoot:
		loaded, err = configFromRoot(values)
	default:
		loaded, err = configFromFile(values)
		if clientcmd.IsEmptyConfig(err) && !byFile {
			loaded, err = configFromRoot(values)
		}
	}
	if err != nil {
		return nil, err
	}
	loaded.UserAgent = "raven/" + version
	loaded.QPS = -1 // who may ask how often is the API server's to say, by priority and fairness
	return loaded, nil
}

// Secrets returns the secrets with which the API server is asked as it is configured, those of the kubeconfig and of
// token files among them, for a redactor. What cannot be read has none.
func Secrets(c *rest.Config) []string {
	secrets := []string{c.BearerToken, c.Password}
	if text, err := os.ReadFile(c.BearerTokenFile); err == nil {
		secrets = append(secrets, strings.TrimSpace(string(text)))
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

func configFromFile(values *config.Values) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	where := "the kubeconfig"
	if path := values.String(group, "kubeconfig"); path != "" {
		rules.ExplicitPath = path
		where = fmt.Sprintf("[kubernetes] kubeconfig = %s (%s)", path, values.Origin(group, "kubeconfig"))
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: values.String(group, "context")}
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) && rules.ExplicitPath == "" {
		return nil, err //nolint:wrapcheck // told apart by RESTConfig
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return loaded, nil
}

func configFromRoot(values *config.Values) (*rest.Config, error) {
	host := values.String(group, "api_root")
	parsed, err := url.Parse(host)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return nil,
			fmt.Errorf("[kubernetes] api_root = %q (%s): not an http or https URL", host, values.Origin(group, "api_root"))
	}
	loaded := &rest.Config{Host: host}
	files := map[string]*string{
		"ssl_client_crt_file": &loaded.CertFile, "ssl_client_key_file": &loaded.KeyFile,
		"ssl_ca_crt_file": &loaded.CAFile, "token_file": &loaded.BearerTokenFile,
	}
	for name, into := range files {
		if *into, err = file(values, name); err != nil {
			return nil, err
		}
	}
	if (loaded.CertFile == "") != (loaded.KeyFile == "") {
		return nil, errors.New("[kubernetes] ssl_client_crt_file and ssl_client_key_file: set both of them, or none")
	}
	if loaded.Insecure = !values.Bool(group, "ssl_verify_server_crt"); loaded.Insecure {
		loaded.CAFile = ""
	}
	if parsed.Scheme == "http" {
		loaded.CAFile, loaded.CertFile, loaded.KeyFile, loaded.Insecure = "", "", "", false
		if values.Origin(group, "token_file").Source == config.FromDefault {
			loaded.BearerTokenFile = ""
		}
	}
	return loaded, nil
}

// file returns the path in an option, if there is such a file. Only the default's may be missing.
func file(values *config.Values, name string) (string, error) {
	path := values.String(group, name)
	if path == "" {
		return "", nil
	}
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && values.Origin(group, name).Source == config.FromDefault {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("[kubernetes] %s = %s (%s): %w", name, path, values.Origin(group, name), err)
	}
	return path, nil
}
