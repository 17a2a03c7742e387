package plugins_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// TestReports holds what depends on the bytes alone against what it was, for a
// guest on each path. A change of the rewriter may change codeBytes and fuel.
func TestReports(t *testing.T) {
	const handler = `,"services":[{"name":"S","methods":[{"name":"run","kind":"handler","export":"run"}]}]`
	for caseName, tc := range map[string]struct {
		build    func(m *wasmtest.Module) // nil: there is no code
		manifest string
		want     string
	}{
		"a prompt plugin": {
			manifest: `,"services":[{"name":"S","methods":[{"name":"chat","kind":"chat","model":"small"` + msgParams + `}]}]`,
			want: `{"class":"inert","path":"prompt","why":["the module has no code"],
				"moduleBytes":263,"manifestBytes":236,"customBytes":255,"models":["small"]}`,
		},
		"one that is reset, and can do nothing but answer": {
			build: func(m *wasmtest.Module) {
				m.Carrel("output_write")
				m.Memory(2)
				m.Data(100, []byte("hello"))
				start := m.Func(nil, nil)
				start.Locals(1, wasmtest.I32).Const(100).Set(0).Loop().Get(0).Const(1).Sub().Raw(0x22, 0).BrIf(0).End()
				m.Start(start)
			},
			manifest: handler,
			want: `{"class":"pure","path":"reset","why":["memory and globals are all that a call can change, and both can be set back"],
				"moduleBytes":290,"manifestBytes":129,"customBytes":163,"codeBytes":247,"dataBytes":5,
				"image":{"pages":2,"filled":1,"bytes":4096},"fuel":700,
				"models":[],"imports":["carrel/v1.output_write"],"exports":["run"]}`,
		},
		"one with an image, that may call its host": {
			build: func(m *wasmtest.Module) {
				m.Carrel("call")
				m.Memory(1)
				m.Table(1)
				f := m.Func(nil, nil)
				f.Const(0).Raw(0xd0, 0x70, 0x26, 0)
				m.Name(f.Index, "forget")
			},
			manifest: handler,
			want: `{"class":"chat","path":"image","why":["function 1 (forget) writes to a table (table.set, byte 89)"],
				"moduleBytes":268,"manifestBytes":129,"customBytes":171,"codeBytes":191,
				"image":{"pages":1,"filled":0,"bytes":0},
				"models":[],"imports":["carrel/v1.call"],"exports":["run"]}`,
		},
		"a plain one, that may call others": {
			build: func(m *wasmtest.Module) {
				m.Carrel("call")
				m.Memory(1)
				m.Table(1)
				f := m.Func(nil, nil)
				f.Const(0).Raw(0xd0, 0x70, 0x26, 0)
				m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
			},
			manifest: handler + `,"capabilities":{"call":["billing/*"]}`,
			want: `{"class":"tools","path":"plain","why":["function 1 writes to a table (table.set, byte 103)",
				"_initialize runs code before the first call, which may do that, too, and no image of the memory could show it: so it runs again in each call"],
				"moduleBytes":312,"manifestBytes":167,"customBytes":201,"codeBytes":205,
				"models":[],"imports":["carrel/v1.call"],"exports":["run"]}`,
		},
	} {
		t.Run(caseName, func(t *testing.T) {
			m := wasmtest.New()
			if tc.build != nil {
				tc.build(m)
				m.Method("run").Const(0)
			}
			wasm := withManifest(string(m.Bytes()), `{"abi":"carrel/v1","name":"a","version":"1"`+tc.manifest+`}`)
			a, err := plugins.NewAdmit(manifest.Known{}, newBox(t))(t.Context(), plugins.Candidate{Module: wasm})
			if err != nil {
				t.Fatal(err)
			}
			if has := a.Report.Measured != nil; has != (tc.build != nil) {
				t.Errorf("measured is %+v", a.Report.Measured)
			}
			a.Report.Measured = nil
			var want plugins.Report
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if got, wanted := mustJSON(t, a.Report), mustJSON(t, want); got != wanted {
				t.Errorf("got  %s\nwant %s", got, wanted)
			}
		})
	}
}

// TestOldReportsAreRead: what a host stored before there were classes.
func TestOldReportsAreRead(t *testing.T) {
	const old = `{"path":"reset","moduleBytes":9,"manifestBytes":5,"models":["default"],"imports":["carrel/v1.call"],"exports":["run"],"compileMicros":70,"notes":["one"]}`
	var r plugins.Report
	if err := json.Unmarshal([]byte(old), &r); err != nil {
		t.Fatal(err)
	}
	const now = `{"path":"reset","moduleBytes":9,"manifestBytes":5,"models":["default"],"imports":["carrel/v1.call"],"exports":["run"],"notes":["one"]}`
	if got := mustJSON(t, r); got != now {
		t.Errorf("it is %s", got)
	}
}

// TestClientsKnowTheWholeReport: what is stored is what is answered.
func TestClientsKnowTheWholeReport(t *testing.T) {
	sameMembers(t, "Report", reflect.TypeFor[plugins.Report](), reflect.TypeFor[client.Report]())
	// Strictly, there and back, with nothing left out.
	var full plugins.Report
	fill(reflect.ValueOf(&full).Elem())
	stored := mustJSON(t, full)
	var answered client.Report
	d := json.NewDecoder(strings.NewReader(stored))
	d.DisallowUnknownFields()
	if err := d.Decode(&answered); err != nil {
		t.Fatal(err)
	}
	if got := mustJSON(t, answered); got != stored {
		t.Errorf("stored is    %s\nanswered is %s", stored, got)
	}
}

// fill gives each part of a value one that is not empty.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("text")
	default:
		v.SetInt(7)
	}
}

func sameMembers(t *testing.T, at string, ours, theirs reflect.Type) {
	t.Helper()
	for k := ours.Kind(); k == theirs.Kind() && (k == reflect.Pointer || k == reflect.Slice); k = ours.Kind() {
		ours, theirs = ours.Elem(), theirs.Elem()
	}
	if ours.Kind() != theirs.Kind() {
		t.Errorf("%s is a %s here and a %s to clients", at, ours, theirs)
		return
	}
	if ours.Kind() != reflect.Struct {
		return
	}
	if ours.NumField() != theirs.NumField() {
		t.Errorf("%s has %d members here and %d to clients", at, ours.NumField(), theirs.NumField())
		return
	}
	for i := range ours.NumField() {
		a, b := ours.Field(i), theirs.Field(i)
		if a.Name != b.Name || a.Tag != b.Tag {
			t.Errorf("%s.%s `%s` is %s `%s` to clients", at, a.Name, a.Tag, b.Name, b.Tag)
		}
		sameMembers(t, at+"."+a.Name, a.Type, b.Type)
	}
}

func TestTheReportSaysWhichWindowsTheHostLowers(t *testing.T) {
	const chat = `{"name":%q,"kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}%s}`
	methods := fmt.Sprintf(chat, "small", `,"window":{"type":"tokens","max":1000}`) + "," +
		fmt.Sprintf(chat, "large", `,"window":{"type":"tokens","max":1001}`) + "," +
		fmt.Sprintf(chat, "messages", `,"window":{"max":1000}`)
	wasm := withManifest(wasmHeader, withService(`"methods":[`+methods+`]`))
	for name, tc := range map[string]struct {
		most int64
		want []string
	}{
		"a host whose bound is not known lowers none": {0, nil},
		"a host with room for all lowers none":        {1 << 20, nil},
		"a host lowers those that hold more": {4000, []string{
			"the window of com.acme.MyChat.large is lowered: 1001 tokens are about 4004 bytes, and this host sends at most 4000 of a history (limit windowBytes)"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := plugins.NewAdmit(manifest.Known{WindowBytes: tc.most}, newBox(t))(t.Context(), plugins.Candidate{Module: wasm})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Report.Notes, tc.want) {
				t.Errorf("got %q", a.Report.Notes)
			}
		})
	}
}
