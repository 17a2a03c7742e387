package memory_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/memory"
)

func TestHandlesOfKeysWhosePartsJoinToTheSame(t *testing.T) {
	secret := [32]byte{1}
	keys := []carrel.MemoryKey{
		{Tenant: "ab", Namespace: "c", Kind: "d", Owner: "e", ID: "f"},
		{Tenant: "a", Namespace: "bc", Kind: "d", Owner: "e", ID: "f"},
		{Tenant: "a", Namespace: "b", Kind: "cd", Owner: "e", ID: "f"},
		{Tenant: "a", Namespace: "b", Kind: "c", Owner: "de", ID: "f"},
		{Tenant: "a", Namespace: "b", Kind: "c", Owner: "d", ID: "ef"},
		{Tenant: "abcdef"}, {Namespace: "abcdef"}, {Kind: "abcdef"}, {Owner: "abcdef"}, {ID: "abcdef"},
		{Tenant: "abc", ID: "def"}, {Tenant: "abc", Owner: "def"},
	}
	seen := map[carrel.Handle]carrel.MemoryKey{}
	for _, k := range keys {
		if joined := string(k.Tenant) + string(k.Namespace) + string(k.Kind) + string(k.Owner) + string(k.ID); joined != "abcdef" {
			t.Fatalf("%+v joins to %q", k, joined)
		}
		h := memory.Handle(secret, k)
		if other, met := seen[h]; met {
			t.Errorf("%+v and %+v have one handle", k, other)
		}
		seen[h] = k
	}
}

// aKey draws keys of few bytes, the length prefix's among them, so that parts
// often join to the same text.
func aKey(t *rapid.T, label string) carrel.MemoryKey {
	part := rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'b', 0, 1}), 0, 3, -1)
	return carrel.MemoryKey{
		Tenant:    carrel.TenantID(part.Draw(t, label+" tenant")),
		Namespace: carrel.Namespace(part.Draw(t, label+" namespace")),
		Kind:      carrel.KeyKind(part.Draw(t, label+" kind")),
		Owner:     carrel.Owner(part.Draw(t, label+" owner")),
		ID:        carrel.MemoryID(part.Draw(t, label+" id")),
	}
}

func TestHandlesAreEqualJustForEqualKeysAndSecrets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := aKey(t, "a"), aKey(t, "b")
		secret := [32]byte{rapid.Byte().Draw(t, "secret")}
		other := secret
		other[31]++
		h := memory.Handle(secret, a)
		if (h == memory.Handle(secret, b)) != (a == b) {
			t.Errorf("%+v and %+v: equal handles and equal keys disagree", a, b)
		}
		if h != memory.Handle(secret, a) {
			t.Error("a handle is not always alike")
		}
		if h == memory.Handle(other, a) {
			t.Error("another secret makes the same handle")
		}
		back, err := carrel.ParseHandle(h.String())
		if err != nil || back != h {
			t.Errorf("%v is read back as %v (%v)", h, back, err)
		}
	})
}

func TestAHandleShowsNothingOfItsKey(t *testing.T) {
	k := carrel.MemoryKey{Tenant: acme, Namespace: "helper", Kind: carrel.KindExplicit, ID: "1234"}
	h := memory.Handle([32]byte{7}, k).String()
	if len(h) != 22 || strings.Contains(h, "1234") || strings.Contains(h, string(acme)) {
		t.Errorf("got %q", h)
	}
}
