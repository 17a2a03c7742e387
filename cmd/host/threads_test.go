package main

import (
	"runtime"
	"testing"
)

func TestAThreadIsSpareWhereTheSystemSharesAllCPUs(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	cpus := runtime.NumCPU()
	fewer := cpus + 1 // than CPUs; what no quota is, where there is but one
	if cpus > 1 {
		fewer = cpus - 1
	}
	for caseName, tc := range map[string]struct {
		threads int
		chosen  string
		want    int
	}{
		"all CPUs are the process's":               {cpus, "", cpus + 1},
		"the operator chose the number of threads": {cpus, "2", cpus},
		"a quota is less than the CPUs":            {fewer, "", fewer},
	} {
		t.Run(caseName, func(t *testing.T) {
			runtime.GOMAXPROCS(tc.threads)
			spareThread(func(name string) string {
				if name != "GOMAXPROCS" {
					t.Errorf("it asks for %q", name)
				}
				return tc.chosen
			})
			if got := runtime.GOMAXPROCS(0); got != tc.want {
				t.Errorf("%d threads, want %d", got, tc.want)
			}
		})
	}
}
