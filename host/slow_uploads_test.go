package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// slowToCompile is an honest module of much code, that no other n has.
func slowToCompile(n int) []byte { return large(n, 2500) }

func large(n int, functions int32) []byte {
	m := wasmtest.New()
	m.Memory(1)
	for i := range functions {
		f := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
		f.Get(0)
		for j := range int32(60) {
			f.Const(int32(n)*7919 + i*61 + j).Add().Get(0).Sub()
		}
	}
	m.Method(hostile.Fine).Const(0)
	m.Custom(abi.ManifestSection, hostile.Manifest(largeName(n), "20s", "", hostile.Fine))
	return m.Bytes()
}

func largeName(n int) string { return fmt.Sprintf("large%d", n) }

// small is a module of little code, that no other n has.
func small(n int) []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method(hostile.Fine).Const(int32(n)).Drop().Const(0)
	m.Custom(abi.ManifestSection, hostile.Manifest(smallName(n), "20s", "", hostile.Fine))
	return m.Bytes()
}

func smallName(n int) string { return fmt.Sprintf("small%d", n) }

// TestSlowUploadsOfATenantHoldUpNoOther uploads 30 slow modules of one tenant
// at once, and small ones of another meanwhile.
func TestSlowUploadsOfATenantHoldUpNoOther(t *testing.T) {
	const slow, quick = 30, 3
	s := besiege(t)
	ctx, cancel := context.WithCancel(t.Context())
	var ended atomic.Int64
	done := make(chan error, slow)
	begin := time.Now()
	for n := range slow {
		go func() {
			_, err := s.mallory.Upload(ctx, slowToCompile(n), client.UploadOptions{})
			ended.Add(1)
			done <- err
		}()
	}
	if err := <-done; err != nil { // so the others are there, too
		t.Fatal(err)
	}
	t.Logf("the first of %d slow uploads took %v", slow, time.Since(begin))
	for n := range quick {
		before, start := ended.Load(), time.Now()
		if _, err := s.acme.Upload(t.Context(), small(n), client.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
		took, meanwhile := time.Since(start), ended.Load()-before
		t.Logf("an upload of another tenant took %v, in which %d of the slow ones ended", took, meanwhile)
		if meanwhile > 2 {
			t.Errorf("an upload of another tenant waited for %d slow ones", meanwhile)
		}
	}
	if n := ended.Load(); n > slow/2 {
		t.Errorf("%d of %d slow uploads had ended: this shows little", n, slow)
	}
	if err := call(t.Context(), s.acme, smallName(0), hostile.Fine); err != nil {
		t.Error(err)
	}
	cancel()
	for range slow - 1 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	s.sound(t)
}
