package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
	"github.com/carrelhost/carrel/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memstore.New(memstore.Config{}) })
}
