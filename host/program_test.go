package host_test

import (
	"os"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

// program is `carrel`, for the tests that run it in a process of its own.
var program testenv.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }
