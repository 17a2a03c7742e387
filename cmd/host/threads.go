package main

import "runtime"

// spareThread lets one goroutine more run at once than there are CPUs. The
// guests of one tenant are on as many CPUs as there are at most, and each
// keeps what it runs on until it comes to the host: so they leave a thread and
// no CPU is idle, and the operating system gives whatever answers others its
// part of the CPUs at once, where Go's scheduler would let it wait for 10 ms
// and more.
//
// Where the operator chose GOMAXPROCS, or the process may use less than its
// CPUs (a quota of a container), it stays: more threads would use the quota up
// sooner, and then all of them stand still. There the guests of one tenant
// may have all threads, and others wait for one for 10 ms: that is less bad
// than a tenant alone that may not use what there is. Go no longer follows a
// quota that is changed once this has added a thread.
func spareThread(getenv func(string) string) {
	if cpus := runtime.NumCPU(); getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == cpus {
		runtime.GOMAXPROCS(cpus + 1)
	}
}
