// SPDX-License-Identifier: Apache-2.0

//go:build tools

package charts

import _ "helm.sh/helm/v4/cmd/helm" // the scenarios on a real API server render the chart with it
