# SPDX-License-Identifier: Apache-2.0
"""Octavia's API with two faults put right at run time; no file of a package is touched.

oslo.log takes a process in which somebody has imported eventlet for one of green threads, and gives its loggers locks of those. The API's
threads are real ones: sooner or later one waits for such a lock for good, and with it all work of the provider ovn (measured, oslo.log 5.0.1:
"greenlet.error: cannot switch to a different thread").

The provider ovn 3.0.0 takes the session persistence of a pool, answers 200 and does nothing about it (measured). Later releases set the option
affinity_timeout of OVN's load balancers, to 360 s unless told; so does this. A provider that knows of it is left as it is.
"""
import inspect

from octavia_lib.api.drivers import data_models
from oslo_log import log
from ovn_octavia_provider import driver, helper


def mend():
    wanted = {}  # session persistence by pool, between the request and the provider's work on it

    def noting(packaged):
        def call(self, *pools):
            persistence = getattr(pools[-1], 'session_persistence', data_models.Unset)
            if not isinstance(persistence, data_models.UnsetType):
                wanted[pools[0].pool_id] = persistence
            packaged(self, *pools)
        return call

    def doing(packaged):
        def call(self, pool):
            status = packaged(self, pool)
            if pool['id'] in wanted:
                persistence = wanted.pop(pool['id'])
                row = self._find_ovn_lbs(pool['loadbalancer_id'], protocol=pool['protocol'])
                if persistence:
                    timeout = persistence.get('persistence_timeout') or 360
                    command = self.ovn_nbdb_api.db_set('Load_Balancer', row.uuid, ('options', {'affinity_timeout': str(timeout)}))
                else:
                    command = self.ovn_nbdb_api.db_remove('Load_Balancer', row.uuid, 'options', 'affinity_timeout', if_exists=True)
                command.execute(check_error=True)
            return status
        return call

    for name in ('pool_create', 'pool_update'):
        setattr(driver.OvnProviderDriver, name, noting(getattr(driver.OvnProviderDriver, name)))
        setattr(helper.OvnProviderHelper, name, doing(getattr(helper.OvnProviderHelper, name)))


log._fix_eventlet_logging = lambda: None
if 'session_persistence' not in inspect.getsource(driver):
    mend()
with open('/usr/bin/octavia-wsgi') as packaged:
    exec(compile(packaged.read(), packaged.name, 'exec'))
