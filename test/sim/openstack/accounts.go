// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"io"
	"log"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Names of the projects, users and clouds that a new Cloud has.
const (
	ProjectAdmin = "admin" // of the administrator
	ProjectKuryr = "kuryr" // of the plain member
	ProjectOther = "other" // another project

	UserAdmin      = "admin"       // role admin in every project
	UserKuryr      = "kuryr"       // role member in kuryr
	UserKuryrAdmin = "kuryr-admin" // role admin in kuryr
	UserOther      = "other"       // role member in other

	CloudMember     = "sim"             // UserKuryr by password
	CloudAppCred    = "sim-appcred"     // UserKuryr by application credential
	CloudAdmin      = "sim-admin"       // UserAdmin in ProjectAdmin
	CloudKuryrAdmin = "sim-kuryr-admin" // UserKuryrAdmin in ProjectKuryr
	CloudOther      = "sim-other"       // UserOther in ProjectOther

	// Region of the catalogue.
	Region = "RegionOne"

	domainID   = "default"
	domainName = "Default"
)

type user struct {
	id, name, password string
	admin              bool
	projects           []string // names
}

type appCred struct{ id, name, secret, user, project string }

type accounts struct {
	projects map[string]string // name to id
	users    map[string]*user  // by name
	appCreds []*appCred
}

func newAccounts(c *Cloud, password string) accounts {
	a := accounts{projects: map[string]string{}, users: map[string]*user{}}
	id := func() string { return strings.ReplaceAll(c.newID(), "-", "") }
	for _, p := range []string{ProjectAdmin, ProjectKuryr, ProjectOther} {
		a.projects[p] = id()
	}
	add := func(name string, admin bool, projects ...string) {
		a.users[name] = &user{id: id(), name: name, password: password, admin: admin, projects: projects}
	}
	add(UserAdmin, true, ProjectAdmin, ProjectKuryr, ProjectOther)
	add(UserKuryr, false, ProjectKuryr)
	add(UserKuryrAdmin, true, ProjectKuryr)
	add(UserOther, false, ProjectOther)
	a.appCreds = []*appCred{
		{id: id(), name: "raven", secret: "appcred-" + password, user: UserKuryr, project: ProjectKuryr},
	}
	return a
}

// projectByID returns a project's name.
func (a accounts) projectName(id string) (string, bool) {
	for name, x := range a.projects {
		if x == id {
			return name, true
		}
	}
	return "", false
}

// ProjectID returns the id of a project by its name, "" for an unknown one.
func (c *Cloud) ProjectID(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accounts.projects[name]
}

// AddProject adds a project with a member of the same name, and returns the project's id.
func (c *Cloud) AddProject(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.accounts.projects[name]; ok {
		return id
	}
	id := strings.ReplaceAll(c.newID(), "-", "")
	c.accounts.projects[name] = id
	c.accounts.users[name] = &user{
		id: strings.ReplaceAll(c.newID(), "-", ""), name: name, password: c.opts.Password, projects: []string{name},
	}
	c.accounts.users[UserAdmin].projects = append(c.accounts.users[UserAdmin].projects, name)
	return id
}

// SetPassword changes a user's password. Tokens that were issued stay valid.
func (c *Cloud) SetPassword(user, password string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.accounts.users[user]
	if !ok {
		return fmt.Errorf("changing a password: no user %q", user)
	}
	u.password = password
	return nil
}

// PasswordAuth returns the auth section of a clouds.yaml for a user and a project.
func (c *Cloud) PasswordAuth(user, project string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	password := c.opts.Password
	if u, ok := c.accounts.users[user]; ok {
		password = u.password
	}
	return map[string]any{
		"auth_url": c.base + "/v3", "username": user, "password": password,
		"project_name": project, "user_domain_name": domainName, "project_domain_name": domainName,
	}
}

// AppCredAuth returns the auth section of a clouds.yaml for the application credential of UserKuryr.
func (c *Cloud) AppCredAuth() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	ac := c.accounts.appCreds[0]
	return map[string]any{
		"auth_url": c.base + "/v3", "application_credential_id": ac.id, "application_credential_secret": ac.secret,
	}
}

// CloudsYAML returns a clouds.yaml with the clouds CloudMember, CloudAppCred, CloudAdmin, CloudKuryrAdmin and
// CloudOther. It is right after Start only, which knows the port.
func (c *Cloud) CloudsYAML() []byte {
	entry := func(auth map[string]any, authType string) map[string]any {
		return map[string]any{
			"auth_type": authType, "auth": auth, "region_name": Region, "interface": "public", "identity_api_version": 3,
		}
	}
	clouds := map[string]any{
		CloudMember:     entry(c.PasswordAuth(UserKuryr, ProjectKuryr), "v3password"),
		CloudAppCred:    entry(c.AppCredAuth(), "v3applicationcredential"),
		CloudAdmin:      entry(c.PasswordAuth(UserAdmin, ProjectAdmin), "v3password"),
		CloudKuryrAdmin: entry(c.PasswordAuth(UserKuryrAdmin, ProjectKuryr), "v3password"),
		CloudOther:      entry(c.PasswordAuth(UserOther, ProjectOther), "v3password"),
	}
	b, err := yaml.Marshal(map[string]any{"clouds": clouds})
	if err != nil {
		panic(fmt.Sprintf("encoding clouds.yaml: %v", err))
	}
	return b
}

// Projects returns the names of the projects.
func (c *Cloud) Projects() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.accounts.projects))
}

// discardLog keeps net/http from writing of cut connections, which are meant.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
