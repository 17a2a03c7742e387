package host_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// idle is a plugin whose handler does nothing.
func idle() []byte {
	m := wasmtest.New()
	m.Memory(2)
	m.Method("noop").Const(0)
	return module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(
		`{"abi":"carrel/v1","name":"idle","version":"1","services":[{"name":"H","methods":[{"name":"noop","kind":"handler","export":"noop"}]}]}`))
}

// BenchmarkNoopOverHTTP is what a request costs besides the guest: a method
// that does nothing, beside a handler of net/http alone that does nothing. The
// clients share the cores with what they ask. To see where the time goes:
//
//	go test ./host -run '^$' -bench NoopOverHTTP/host -benchmem -cpuprofile cpu.out
func BenchmarkNoopOverHTTP(b *testing.B) {
	b.Run("net-http", func(b *testing.B) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				b.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			if _, err := w.Write([]byte("{}")); err != nil {
				b.Error(err)
			}
		}))
		defer s.Close()
		askInParallel(b, s.URL, "")
	})
	b.Run("host", func(b *testing.B) {
		env := testenv.New(b, testenv.Config())
		acme := env.Tenant("acme")
		acme.Upload(idle())
		askInParallel(b, env.Addr()+"/api/v1/plugins/idle/services/H/noop", acme.Key())
	})
}

// askInParallel sends the same request over several connections, each again
// as soon as it has its answer.
func askInParallel(b *testing.B, url, key string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var d net.Dialer
		conn, err := d.DialContext(b.Context(), "tcp", r.Host)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = conn.Close() }() // what was sent was answered
		for answers := bufio.NewReader(conn); pb.Next(); {
			if err := ask(conn, answers, wire.Bytes()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// ask sends a request and reads its answer, which is a success.
func ask(conn net.Conn, answers *bufio.Reader, wire []byte) error {
	if _, err := conn.Write(wire); err != nil {
		return err
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}
