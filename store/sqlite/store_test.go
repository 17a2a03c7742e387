package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
	"github.com/carrelhost/carrel/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "host.db")})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
