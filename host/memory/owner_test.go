package memory_test

import (
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

func TestOwners(t *testing.T) {
	for name, tc := range map[string]struct {
		owner string
		ok    bool
	}{
		"a subject":                         {"subject:ann", true},
		"a key":                             {"key:key_1", true},
		"a subject spelled like a key":      {"subject:key:key_1", true},
		"a subject with spaces and accents": {"subject:Ann É", true},
		"a subject of the longest":          {"subject:" + strings.Repeat("x", carrel.MaxSubjectBytes), true},
		"a subject that is too long":        {"subject:" + strings.Repeat("x", carrel.MaxSubjectBytes+1), false},
		"nothing":                           {"", false},
		"a name without its kind":           {"ann", false},
		"a kind that nobody knows":          {"role:owner", false},
		"a kind in capitals":                {"Subject:ann", false},
		"a subject without a name":          {"subject:", false},
		"a key without a name":              {"key:", false},
		"a kind without its colon":          {"subject", false},
		"a control character":               {"subject:a\nb", false},
		"bytes that are no text":            {"key:\xff", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := memory.ParseOwner(tc.owner)
			if !tc.ok {
				wantFault(t, err, abi.InvalidParams, "", "as an export names it")
				return
			}
			if err != nil || got != carrel.Owner(tc.owner) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// Whatever a caller is called, an export of its history can be imported.
func FuzzEveryOwnerIsRead(f *testing.F) {
	f.Add("key_1", "")
	f.Add("key_1", "ann")
	f.Add("key_1", "key:key_1")
	f.Fuzz(func(t *testing.T, key, subject string) {
		who := carrel.Caller{Key: carrel.KeyID(key), Subject: carrel.Subject(subject)}
		id := subject
		if id == "" {
			id = key
		}
		if _, err := carrel.ParseSubject(id); err != nil {
			return // no such caller
		}
		owner := memory.OwnerOf(who)
		if got, err := memory.ParseOwner(string(owner)); err != nil || got != owner {
			t.Errorf("%q became %q, %v", owner, got, err)
		}
	})
}

func TestOwnersNeverMeet(t *testing.T) {
	resolve := func(c carrel.Caller) carrel.MemoryKey {
		key, err := memory.Resolve(ambient(c, "X-Conversation", "c1"), target(fromHeader), nil)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	keys := map[carrel.MemoryKey]string{}
	for name, c := range map[string]carrel.Caller{
		"a key":                           {Tenant: acme, Key: "alike"},
		"a subject spelled like that key": {Tenant: acme, Key: "other", Subject: "alike"},
		"a subject spelled like that key's owner":    {Tenant: acme, Key: "other", Subject: "key:alike"},
		"a key spelled like the subject's owner":     {Tenant: acme, Key: "subject:alike"},
		"a subject spelled like its own owner":       {Tenant: acme, Key: "other", Subject: "subject:alike"},
		"the same key's id in another tenant":        {Tenant: "other", Key: "alike"},
		"the same subject in another tenant":         {Tenant: "other", Key: "other", Subject: "alike"},
		"another key of the tenant without subjects": {Tenant: acme, Key: "other"},
	} {
		key := resolve(c)
		if before, met := keys[key]; met {
			t.Errorf("%s and %s have the same key %+v", before, name, key)
		}
		keys[key] = name
	}
	one := resolve(carrel.Caller{Tenant: acme, Key: "one", Subject: "ann"})
	two := resolve(carrel.Caller{Tenant: acme, Key: "two", Subject: "ann"})
	if one != two {
		t.Errorf("one subject by two keys has %+v and %+v", one, two)
	}
}
