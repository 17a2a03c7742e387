package main_test

import (
	"sync"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestTheCounterIsFreshInEveryCall(t *testing.T) {
	acme := testenv.New(t, testenv.Config()).Tenant("acme")
	acme.Build(".")
	if r := acme.Report("counter"); r.Class != "pure" || r.Path != "reset" || r.Image == nil || r.Fuel == 0 || r.Measured == nil {
		t.Errorf("the report is %+v", r)
	}
	count := func() {
		out := acme.Chat("counter/com.acme.Counter.count")
		if got, _ := out.Output.(map[string]any); got["calls"] != 1.0 {
			t.Errorf("the counter says %v, want 1", out.Output)
		}
	}
	count()
	count()
	var all sync.WaitGroup
	for range 8 {
		all.Go(count)
	}
	all.Wait()
}
