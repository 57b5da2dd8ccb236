// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"github.com/kuryr/raven/service/config"
)

const group = "neutron"

// Options declares [neutron]: keystoneauth's options by their usual names, and how hard the service may be worked.
func Options() []config.Option {
	return append(append(credentials(), places()...), pace()...)
}

func credentials() []config.Option {
	former := func(name string) []config.Name { return []config.Name{{Group: "keystone_client", Name: name}} }
	return []config.Option{
		{
			Group: group, Name: "cloud",
			Help: "Name of a cloud in clouds.yaml, which is searched for as OpenStack's clients do: OS_CLIENT_CONFIG_FILE, " +
				"the current directory, ~/.config/openstack, /etc/openstack. " +
				"Takes the place of the options on authentication here.",
		},
		{Group: group, Name: "clouds_file", Help: "Path of clouds.yaml, instead of the usual places.", Advanced: true},
		{
			Group: group, Name: "auth_type",
			Choices: []string{"password", "v3password", "v3applicationcredential", "token", "v3token"},
			ChoiceHelp: map[string]string{ //nolint:gosec // no credentials: what the types of them are called
				"password": "Older name of v3password", "v3password": "By username and password",
				"v3applicationcredential": "By an application credential", "token": "Older name of v3token",
				"v3token": "By a token, which cannot be renewed when it expires",
			},
			Help: "How to authenticate. Left out, it follows from what is given.",
		},
		{
			Group: group, Name: "auth_url", Type: config.URI, Schemes: web(), Help: "URL of Keystone.",
			SampleDefault: "https://keystone.example.org:5000/v3",
			Deprecated:    former("auth_uri"), Env: []string{"IDENTITY_URL"},
		},
		{
			Group: group, Name: "username", Help: "User's name.",
			Deprecated: former("admin_user"), Env: []string{"SERVICE_USER"},
		},
		{Group: group, Name: "user_id", Help: "User's id, instead of username and domain."},
		{
			Group: group, Name: "password", Help: "User's password.", Secret: true,
			Deprecated: former("admin_password"), Env: []string{"SERVICE_PASSWORD"},
		},
		{
			Group: group, Name: "user_domain_name",
			Help: "Name of the user's domain. Without a domain it is the one with the id default.",
		},
		{Group: group, Name: "user_domain_id", Help: "Id of the user's domain."},
		{
			Group: group, Name: "project_name", Help: "Name of the project that everything is made in.",
			Deprecated: append(former("admin_tenant_name"), config.Name{Name: "tenant_name"}),
			Env:        []string{"SERVICE_TENANT_NAME"},
		},
		{
			Group: group, Name: "project_id", Help: "Id of the project, instead of name and domain.",
			Deprecated: []config.Name{{Name: "tenant_id"}},
		},
		{Group: group, Name: "project_domain_name", Help: "Name of the project's domain."},
		{Group: group, Name: "project_domain_id", Help: "Id of the project's domain."},
		{Group: group, Name: "application_credential_id", Help: "Id of an application credential."},
		{
			Group: group, Name: "application_credential_name",
			Help: "Name of an application credential of the user, instead of its id.",
		},
		{Group: group, Name: "application_credential_secret", Help: "Secret of the application credential.", Secret: true},
		{
			Group: group, Name: "token", Help: "A token, which cannot be renewed when it expires.", Secret: true, Advanced: true,
		},
	}
}

func places() []config.Option {
	return []config.Option{
		{Group: group, Name: "region_name", Help: "Region of the networking service, where the catalog has several."},
		{
			Group: group, Name: "valid_interfaces", Type: config.List, Default: "public",
			Choices: []string{"public", "internal", "admin", "publicURL", "internalURL", "adminURL"},
			ChoiceHelp: map[string]string{
				"public": "The one for everybody", "internal": "The one inside the cloud", "admin": "The one for administrators",
				"publicURL": "Older name of public", "internalURL": "Older name of internal", "adminURL": "Older name of admin",
			},
			Help:       "Interfaces of the networking service in the catalog, in order of preference.",
			Deprecated: []config.Name{{Name: "endpoint_type"}, {Name: "interface"}},
		},
		{
			Group: group, Name: "endpoint_override", Type: config.URI, Schemes: web(),
			Help:       "URL of the networking service, instead of the catalog's.",
			Deprecated: []config.Name{{Group: "neutron_client", Name: "neutron_uri"}}, Env: []string{"OS_URL"},
		},
		{
			Group: group, Name: "cafile", Help: "File with the certificates of the authorities that sign the servers' ones.",
			Deprecated: []config.Name{{Group: "keystone_client", Name: "auth_ca_cert"}},
		},
		{Group: group, Name: "certfile", Help: "File with the client's certificate."},
		{Group: group, Name: "keyfile", Help: "File with the client's key, if it is not in certfile."},
		{
			Group: group, Name: "insecure", Type: config.Boolean, Default: "false",
			Help:       "Do not verify the servers' certificates.",
			Deprecated: []config.Name{{Group: "keystone_client", Name: "auth_insecure"}},
		},
		{
			Group: group, Name: "timeout", Type: config.Duration, Default: "60", Min: bound(1),
			Help: "The longest that one request may take. A batch of creates is kept to a quarter of it.",
		},
	}
}

func pace() []config.Option {
	return []config.Option{
		{
			Group: group, Name: "max_concurrency", Type: config.Integer, Default: "16", Min: bound(1), Max: bound(256),
			Help: "The most requests in flight at once. How many there are adapts to what the server bears.",
		},
		{
			Group: group, Name: "max_batch", Type: config.Integer, Default: "512", Min: bound(1), Max: bound(4096),
			Help: "The most resources in one create. How many there are adapts to the time that each takes.",
		},
		{
			Group: group, Name: "ambiguous_create_wait", Type: config.Duration, Default: "120", Min: bound(1),
			Help: "How long a create whose answer was lost may still take effect on the server: before that it is not sent " +
				"again. At least the time-out of the proxies before it.",
		},
	}
}

// web are the schemes of the services' addresses.
func web() []string { return []string{"http", "https"} }

func bound(v float64) *float64 { return &v }

// FromConfig reads the declared options. It fails where credentials are missing.
func FromConfig(v *config.Values) (Config, error) {
	text := func(name string) string { return v.String(group, name) }
	c := Config{
		Cloud: text("cloud"), CloudsFile: text("clouds_file"),
		AuthType: text("auth_type"), AuthURL: text("auth_url"), Username: text("username"), UserID: text("user_id"),
		Password: text("password"), UserDomainID: text("user_domain_id"), UserDomainName: text("user_domain_name"),
		ProjectID: text("project_id"), ProjectName: text("project_name"), ProjectDomainID: text("project_domain_id"),
		ProjectDomainName: text("project_domain_name"), Token: text("token"),
		ApplicationCredentialID:     text("application_credential_id"),
		ApplicationCredentialName:   text("application_credential_name"),
		ApplicationCredentialSecret: text("application_credential_secret"),
		RegionName:                  text("region_name"), Interfaces: v.List(group, "valid_interfaces"),
		EndpointOverride: text("endpoint_override"),
		CAFile:           text("cafile"), CertFile: text("certfile"), KeyFile: text("keyfile"),
		Insecure: v.Bool(group, "insecure"), Timeout: v.Duration(group, "timeout"),
		MaxConcurrency: int(v.Int(group, "max_concurrency")), MaxBatch: int(v.Int(group, "max_batch")),
		AmbiguousWait: v.Duration(group, "ambiguous_create_wait"),
	}
	if origin := v.Origin(group, "valid_interfaces"); c.Cloud != "" && origin.Source == config.FromDefault {
		c.Interfaces = nil // clouds.yaml's
	}
	return c.withDefaults(), c.withDefaults().Validate()
}
