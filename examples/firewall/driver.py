# SPDX-License-Identifier: Apache-2.0
"""Opens ports of a namespace's pods: what ConfigMaps with the label example.org/firewall=open say becomes rules of the namespace's
security group. It never does I/O: translate is a pure function."""

import ipaddress

import raven_driver as raven

ANNOTATION = "example.org/firewall"


class Firewall:
    """One ConfigMap has a line for each port: the key is protocol.port (tcp.22), the value the ranges that may reach it."""

    def __init__(self):
        self.widest = 0

    def info(self):
        return raven.Info(
            name="firewall", version="0.1", description="Security group rules from ConfigMaps.",
            kinds=["security_group_rule"], annotations=[ANNOTATION],
            options=[raven.Option(
                group="firewall", name="min_prefix", type=raven.OPTION_TYPE_INTEGER, default="0", min=0, max=128,
                help="The least length in bits of a range's prefix. A wider range is left out, and said so. 0 allows all.",
            )],
        )

    def configure(self, values):
        self.widest = values["firewall"]["min_prefix"]
        return [
            raven.Watch(
                name="rules", version="v1", resource="configmaps", kind="ConfigMap", source=True,
                label_selector="example.org/firewall=open", fields=["data"],
            ),
            raven.Watch(
                name="namespaces", version="v1", resource="namespaces", kind="Namespace",
                fields=["metadata.labels['example.org/firewall']"],
            ),
        ]

    def translate(self, obj, needs):
        namespace, _ = raven.name_of(obj)
        space = needs.get("namespaces", name=namespace)  # asked again with the answer
        if space is None or raven.at(space, "metadata.labels['example.org/firewall']", str) == "closed":
            return raven.Set()
        group = raven.from_role(raven.role("Namespace", "", namespace, "namespace-security-group"))
        wanted, opened = raven.Set(), []
        data = raven.at(obj, "data", dict, {})
        for key in sorted(data):  # sorted: equal objects give equal Sets
            try:
                protocol, port = parse_port(key)
                ranges = [ipaddress.ip_network(part) for part in raven.at(data, f"['{key}']", str, "").split()]
            except ValueError as bad:
                wanted.diagnostics.append(raven.diagnostic("BadRule", f"{key}: {bad}; the rule is left out"))
                continue
            for network in ranges:
                if network.prefixlen < self.widest:
                    wanted.diagnostics.append(raven.diagnostic(
                        "TooWide", f"{key}: {network} is wider than [firewall] min_prefix = {self.widest} allows; it is left out"))
                    continue
                wanted.resources.append(raven.Resource(
                    name=f"{protocol}-{port}-{network}".replace("/", "-").replace(":", "-"),
                    security_group_rule=raven.SecurityGroupRule(
                        security_group_id=group, direction="ingress", ethertype=f"IPv{network.version}", protocol=protocol,
                        port_range_min=port, port_range_max=port, remote_ip_prefix=str(network),
                    ),
                ))
                opened.append(f"{protocol}.{port} from {network}")
        wanted.outputs.append(raven.output(ANNOTATION, ", ".join(opened) or "nothing"))
        return wanted


def parse_port(key):
    """Reads tcp.22."""
    protocol, _, port = key.partition(".")
    if protocol not in ("tcp", "udp") or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("it is not like tcp.22 or udp.53")
    return protocol, int(port)
