package daemon

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kuryr/raven/service/host/confine"
)

// The test binary is a Raven that becomes a driver, too.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		confine.Main(os.Args)
	}
	goleak.VerifyTestMain(m)
}
