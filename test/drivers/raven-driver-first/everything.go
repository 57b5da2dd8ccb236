package main

import (
	contract "github.com/kuryr/raven/test/drivers/raven-driver-first/contract"
)

func text(s string) *string { return &s }
func number(n int64) *int64 { return &n }
func yes(b bool) *bool      { return &b }
func literal(s string) *contract.Value {
	return &contract.Value{Kind: &contract.Value_Literal{Literal: s}}
}
func ref(name string) *contract.Ref { return &contract.Ref{Target: &contract.Ref_Name{Name: name}} }
func from(name string) *contract.Value {
	return &contract.Value{Kind: &contract.Value_Ref{Ref: ref(name)}}
}
func list(all ...string) *contract.StringList { return &contract.StringList{Values: all} }

func fromRole(role *contract.Role) *contract.Value {
	return &contract.Value{Kind: &contract.Value_Ref{Ref: &contract.Ref{Target: &contract.Ref_Role{Role: role}}}}
}

// everything is a Set with every message of the first contract in it.
func everything(name, namespace, node, label string) *contract.Set {
	group := &contract.Role{Kind: "Namespace", Name: namespace, Role: "namespace-security-group"}
	router := &contract.Role{Kind: "Namespace", Name: namespace, Role: "cluster-router"}
	gateway := from("subnet")
	gateway.GetRef().Attribute = "gateway_ip"
	return &contract.Set{
		Resources: []*contract.Resource{
			{Name: "outside", Spec: &contract.Resource_Lookup{Lookup: &contract.Lookup{Of: "network", Id: "public"}}},
			{Name: "network", Exports: []string{"first-network"}, Spec: &contract.Resource_Network{Network: &contract.Network{
				Name: text(name + "-network"), AdminStateUp: yes(true), Mtu: number(1400), PortSecurityEnabled: yes(true), DnsDomain: text(""),
			}}},
			{Name: "pool", Claim: "first-pool", OnDelete: contract.Policy_POLICY_RETAIN, Spec: &contract.Resource_Subnetpool{Subnetpool: &contract.SubnetPool{
				Name: text("first-pool"), Prefixes: list("10.0.0.0/8"), DefaultPrefixlen: number(24), MinPrefixlen: number(20), MaxPrefixlen: number(28),
			}}},
			{Name: "subnet", Expand: 3, Spec: &contract.Resource_Subnet{Subnet: &contract.Subnet{
				Name: text(name + "-subnet"), NetworkId: from("network"), IpVersion: number(4), SubnetpoolId: from("pool"), EnableDhcp: yes(false),
				DnsNameservers: list(), HostRoutes: &contract.RouteList{Values: []*contract.Route{{Destination: "10.9.0.0/16", Nexthop: "10.0.0.9"}}},
			}}},
			{Name: "router", Spec: &contract.Resource_Router{Router: &contract.Router{
				Name: text(name + "-router"), ExternalGatewayInfo: &contract.ExternalGateway{NetworkId: from("outside"), EnableSnat: yes(true)},
			}}},
			{Name: "interface", Spec: &contract.Resource_RouterInterface{RouterInterface: &contract.RouterInterface{
				RouterId: from("router"), SubnetId: from("subnet"), NetworkId: from("network"), IpAddress: gateway,
			}}},
			{Name: "group", Spec: &contract.Resource_SecurityGroup{SecurityGroup: &contract.SecurityGroup{Name: text(name), Stateful: yes(true)}}},
			{Name: "rule", Spec: &contract.Resource_SecurityGroupRule{SecurityGroupRule: &contract.SecurityGroupRule{
				SecurityGroupId: from("group"), Direction: text("ingress"), Ethertype: text("IPv4"), Protocol: text("tcp"), PortRangeMin: number(1),
				PortRangeMax: number(9), RemoteIpPrefix: text("10.0.0.0/8"),
			}}},
			{Name: "port", After: []*contract.Ref{ref("interface")}, Spec: &contract.Resource_Port{Port: &contract.Port{
				Name: text(name), NetworkId: from("network"), AdminStateUp: yes(true), DeviceOwner: text("first:pod"), DeviceId: text(""),
				BindingHostId: text(node), MacAddress: text("fa:16:3e:00:00:01"),
				FixedIps:            &contract.FixedIPList{Values: []*contract.FixedIP{{SubnetId: from("subnet")}}},
				SecurityGroups:      &contract.ValueList{Values: []*contract.Value{from("group"), fromRole(group)}},
				AllowedAddressPairs: &contract.AddressPairList{},
			}}},
			{Name: "address", Spec: &contract.Resource_Floatingip{Floatingip: &contract.FloatingIP{FloatingNetworkId: from("outside"), PortId: from("port")}}},
		},
		Contributions: []*contract.Contribution{{
			Name: "route", Target: router, Attribute: "routes",
			Element: &contract.Contribution_Route{Route: &contract.Route{Destination: "10.8.0.0/16", Nexthop: "10.0.0.8"}},
		}},
		Outputs: []*contract.Output{
			{Kind: contract.OutputKind_OUTPUT_KIND_ANNOTATION, Key: "first.example/port", Value: &contract.Output_Document{Document: ref("port")}},
			{Kind: contract.OutputKind_OUTPUT_KIND_LABEL, Key: "first.example/zone", Value: &contract.Output_Text{Text: literal(label)}},
		},
		Diagnostics: []*contract.Diagnostic{{
			Severity: contract.Severity_SEVERITY_WARNING, Reason: "OldDriver", Message: "this driver is of the first contract", Resource: "port",
		}},
	}
}
