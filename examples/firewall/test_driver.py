# SPDX-License-Identifier: Apache-2.0
"""Tests of the firewall driver: python3 -m unittest"""

import unittest

from driver import Firewall, parse_port
from raven_driver.testing import Goldens


class TestGoldens(Goldens, unittest.TestCase):
    """testdata/*, by direct call and over gRPC."""

    driver, folder = Firewall, "testdata"


class TestPort(unittest.TestCase):
    """The keys of the ConfigMaps."""

    def test_bad(self):
        for key in ("", "tcp", "tcp.0", "tcp.65536", "icmp.1", "tcp.x", "tcp.-1"):
            with self.assertRaises(ValueError, msg=key):
                parse_port(key)

    def test_good(self):
        self.assertEqual(("udp", 53), parse_port("udp.53"))


if __name__ == "__main__":
    unittest.main()
