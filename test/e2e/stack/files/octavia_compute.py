# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Nova, loaded by entry point: what Nova does to Neutron's ports when a server is plugged, and nothing else.

Octavia's compute_noop_driver returns nothing from attach, so that the real network driver leaves every load balancer in
ERROR (measured, 11.0.0).
"""
from types import SimpleNamespace

from octavia.common import clients
from octavia.compute.drivers.noop_driver.driver import NoopComputeDriver
from oslo_config import cfg


def neutron():
    n = cfg.CONF.neutron
    return clients.NeutronAuth.get_neutron_client(
        endpoint=n.endpoint, region=n.region_name, endpoint_type=n.endpoint_type,
        service_name=n.service_name, insecure=n.insecure, ca_cert=n.ca_certificates_file)


class Driver(NoopComputeDriver):
    def attach_network_or_port(self, compute_id, network_id=None, ip_address=None, port_id=None):
        if port_id:
            p = neutron().update_port(port_id, {'port': {'device_id': compute_id}})['port']
        else:
            p = neutron().create_port({'port': {
                'device_id': compute_id, 'device_owner': 'compute:nova', 'network_id': network_id, 'name': 'nova'}})['port']
        return SimpleNamespace(net_id=p['network_id'], port_id=p['id'], fixed_ips=p['fixed_ips'])

    def detach_port(self, compute_id, port_id):
        self._let_go(neutron().show_port(port_id)['port'])

    def delete(self, compute_id):
        for p in neutron().list_ports(device_id=compute_id)['ports']:
            self._let_go(p)

    @staticmethod
    def _let_go(p):
        if p['name'] == 'nova':
            neutron().delete_port(p['id'])
        else:
            neutron().update_port(p['id'], {'port': {'device_id': ''}})
