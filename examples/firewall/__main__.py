# SPDX-License-Identifier: Apache-2.0
"""The plugin of the firewall driver. Raven starts it."""

import raven_driver

from driver import Firewall

raven_driver.serve(Firewall())
