package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/plugins"
)

// fill sets all that a value has to what is not zero, each number to another.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString("s" + string(rune('a'+*n)))
	default:
		v.SetInt(*n)
	}
}

// into decodes JSON into what must have every member of it, and encodes that.
func into(t *testing.T, b []byte, out any) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAReportIsReadAsAHostWritesIt(t *testing.T) {
	var written plugins.Report
	var read client.Report
	var n int64
	fill(reflect.ValueOf(&written).Elem(), &n)
	fill(reflect.ValueOf(&read).Elem(), &n)
	a, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	if got := into(t, a, new(client.Report)); !bytes.Equal(got, a) {
		t.Errorf("a client reads\n%s\nof\n%s", got, a)
	}
	b, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	if got := into(t, b, new(plugins.Report)); !bytes.Equal(got, b) {
		t.Errorf("a host writes\n%s\nwhere clients know\n%s", got, b)
	}
	for what, v := range map[string]any{"with nothing in it": plugins.Report{}, "of a client with nothing in it": client.Report{}} {
		a, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := into(t, a, new(client.Report)); !bytes.Equal(got, a) {
			t.Errorf("a report %s is %s, read as %s", what, a, got)
		}
	}
}
