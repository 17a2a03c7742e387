package memory_test

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

// FuzzResolve checks what must hold of a key whatever a client sends as its
// memory id, its header or its subject.
func FuzzResolve(f *testing.F) {
	f.Add("1", "c1", "ann", true)
	f.Add("", "", "", false)
	f.Add("a\x00", "\xff", "key:key_1", false)
	f.Fuzz(func(t *testing.T, id, header, subject string, required bool) {
		target := target(both(optionalID, fromHeader))
		target.Required = required
		who := ann(carrel.Subject(subject))
		in := memory.Ambient{Caller: who, Request: "req_1", Header: func(string) []string { return []string{header} }}
		key, err := memory.Resolve(in, target, map[string]any{"id": id})
		if err != nil {
			if carrel.CodeOf(err) != abi.InvalidMemoryID || key != (carrel.MemoryKey{}) {
				t.Fatalf("got %+v, %v", key, err)
			}
			return
		}
		want := carrel.MemoryKey{Tenant: acme, Namespace: "helper"}
		switch {
		case id != "":
			want.Kind, want.ID = carrel.KindExplicit, carrel.MemoryID(id)
		case header != "":
			want.Kind, want.ID, want.Owner = carrel.KindPlugin, carrel.MemoryID(header+suffix), "key:key_1"
			if subject != "" {
				want.Owner = carrel.Owner("subject:" + subject)
			}
		default:
			want.Kind, want.ID = carrel.KindRequest, "req_1"+suffix
		}
		if key != want {
			t.Fatalf("got %+v, want %+v", key, want)
		}
		if !utf8.ValidString(string(key.ID)) || len(key.ID) > abi.MaxMemoryIDBytes {
			t.Fatalf("the id is %q", key.ID)
		}
		for _, r := range string(key.ID) {
			if unicode.IsControl(r) {
				t.Fatalf("the id is %q", key.ID)
			}
		}
	})
}
