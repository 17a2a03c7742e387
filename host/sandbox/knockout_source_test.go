package sandbox_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A guard is a place in the source that refuses something, or bounds it. This
// file finds those that refuse, so that one that somebody adds is found, too,
// and takes any of them out of a copy of the source.
//
// A guard is named by its function and its condition, for example
// "module linter.globals: mutable > 1". In the copy the condition of each is
// also asked whether it is knocked out; the sources of the package itself know
// nothing of this.

// guarded is a package whose guards are found.
type guarded struct {
	name, dir string
	// refusing are the functions whose call is a refusal; they are not
	// guards themselves.
	refusing []string
	// answers are the names of what a function returns to refuse.
	answers []string
}

func guardedPackages() []guarded {
	return []guarded{
		{"slots", "slots", nil, nil},
		{"module", "module", []string{"malformed", "overLimit", "unknown", "s.refused.add", "carrel.Fail"}, nil},
		{"sandbox", ".", []string{"refuse", "outside", "resultsFull", "noHandle", "carrel.Fail", "carrel.FailLimit", "stop"},
			[]string{"wasiBadF", "wasiFault", "wasiInval", "wasiIO", "wasiSPipe", "l.dropped"}},
	}
}

// ignored are files of the sandbox whose refusals are no bounds of a guest
// that runs: they are about compiling, the cache and the way in.
var ignored = []string{"child.go", "child_other.go", "child_linux.go", "config.go"}

// guard is one that was found.
type guard struct {
	id   string
	pos  token.Position
	edit []edit
}

// edit replaces bytes of a file.
type edit struct {
	from, to int
	text     string
}

// copied is a package of which every guard can be knocked out.
type copied struct {
	guarded
	files  map[string][]byte // by name
	guards []guard
}

// hookName is the function that the copies ask.
const hookName = "stillThere"

// hook is a file that is added to a copy.
const hook = `package %s

import (
	"os"
	"slices"
	"strings"
)

var knockedOut = strings.Split(os.Getenv(%q), "\n")

func ` + hookName + `(guard string) bool { return !slices.Contains(knockedOut, guard) }
`

// copyOf reads a package, finds its guards and applies the rules.
func copyOf(t *testing.T, p guarded, rules []rule) copied {
	t.Helper()
	out := copied{guarded: p, files: map[string][]byte{}}
	names, err := filepath.Glob(filepath.Join(p.dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var edits []edit
		for _, r := range rules {
			if r.pkg == p.name && r.file == name {
				edits = append(edits, r.edit(t, src))
			}
		}
		if !slices.Contains(ignored, name) {
			for _, g := range guardsOf(t, p, name, src) {
				out.guards = append(out.guards, g)
				edits = append(edits, g.edit...)
			}
		}
		if len(edits) > 0 {
			out.files[name] = apply(t, name, src, edits)
		}
	}
	out.files["knockout.go"] = fmt.Appendf(nil, hook+ruleHook, p.name, knockedOutEnv)
	if p.name == "module" {
		out.files["knockout.go"] = append(out.files["knockout.go"], moduleHook...)
	}
	return out
}

// unique numbers guards that have one name. The edits hold the name, so that
// two of one name would be knocked out together.
func unique(guards []guard) {
	seen := map[string]int{}
	for i := range guards {
		g := &guards[i]
		if seen[g.id]++; seen[g.id] > 1 {
			old := g.id
			g.id = fmt.Sprintf("%s (%d)", old, seen[old])
			for j := range g.edit {
				g.edit[j].text = strings.Replace(g.edit[j].text, fmt.Sprintf("%q", old), fmt.Sprintf("%q", g.id), 1)
			}
		}
	}
}

func apply(t *testing.T, name string, src []byte, edits []edit) []byte {
	t.Helper()
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		if e.from < at {
			t.Fatalf("%s: two guards are at one place, near %q", name, src[e.from:e.to])
		}
		out.Write(src[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(src[at:])
	b, err := format.Source(out.Bytes())
	if err != nil {
		t.Fatalf("the copy of %s: %v", name, err)
	}
	return b
}

// finder goes through one file.
type finder struct {
	guarded
	set    *token.FileSet
	src    []byte
	path   []ast.Node // from the file to the node at hand
	guards []guard
}

func guardsOf(t *testing.T, p guarded, name string, src []byte) []guard {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	f := &finder{guarded: p, set: set, src: src}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || slices.Contains(p.refusing, fn.Name.Name) {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if n == nil {
				f.path = f.path[:len(f.path)-1]
				return true
			}
			f.path = append(f.path, n)
			f.look(n, receiver(fn)+fn.Name.Name)
			return true
		})
	}
	unique(f.guards)
	return f.guards
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	typ := fn.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	return typ.(*ast.Ident).Name + "."
}

func (f *finder) text(n ast.Node) string { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

// look notes a node if it is a guard: a statement that refuses, or the limit
// of a vector.
func (f *finder) look(n ast.Node, function string) {
	switch n := n.(type) {
	case *ast.ReturnStmt, *ast.AssignStmt, *ast.ExprStmt, *ast.IncDecStmt:
		if f.refuses(n) {
			f.refusal(n.(ast.Stmt), f.name+" "+function+": ")
		}
	case *ast.CompositeLit:
		if n.Type != nil && f.text(n.Type) == "vectorLimit" && len(n.Elts) == 2 {
			id := f.name + " " + function + ": " + strings.Trim(f.text(n.Elts[0]), `"`)
			f.found(n, id, edit{f.offset(n.Pos()), f.offset(n.End()), fmt.Sprintf("limitUnless(%q, %s)", id, f.text(n))})
		}
	}
}

func (f *finder) found(n ast.Node, id string, edits ...edit) {
	f.guards = append(f.guards, guard{id, f.set.Position(n.Pos()), edits})
}

// refuses reports whether a statement refuses by itself, not in a block or
// a function in it.
func (f *finder) refuses(stmt ast.Node) bool {
	found := false
	ast.Inspect(stmt, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			name := f.text(n.Fun)
			found = found || slices.Contains(f.refusing, name) || slices.Contains(f.refusing, name[strings.LastIndexByte(name, '.')+1:]) && !strings.HasPrefix(name, "carrel.") && !strings.Contains(name, "Wait")
		case *ast.CompositeLit:
			found = found || n.Type != nil && slices.Contains(f.refusing, f.text(n.Type))
		case *ast.Ident:
			found = found || slices.Contains(f.answers, n.Name)
		case *ast.SelectorExpr:
			found = found || slices.Contains(f.answers, f.text(n))
		}
		return true
	})
	return found
}

// refusal makes a guard of a statement: its condition is what is around it.
func (f *finder) refusal(stmt ast.Stmt, prefix string) {
	for i := len(f.path) - 2; i > 0; i-- {
		switch around := f.path[i].(type) {
		case *ast.FuncLit:
			return
		case *ast.IfStmt:
			if f.path[i+1] == around.Else {
				f.statement(stmt, prefix+"not "+f.text(around.Cond))
				return
			}
			f.condition(stmt, prefix, f.text(around.Cond), []ast.Expr{around.Cond})
			return
		case *ast.CaseClause:
			of, tagged := f.path[i-2].(*ast.SwitchStmt)
			what := "default"
			if len(around.List) > 0 {
				what = string(f.src[f.offset(around.List[0].Pos()):f.offset(around.List[len(around.List)-1].End())])
			}
			switch {
			case tagged && of.Tag != nil:
				f.statement(stmt, prefix+what+" of "+f.text(of.Tag))
			case what == "default":
				f.statement(stmt, prefix+what)
			default:
				f.condition(stmt, prefix, what, around.List)
			}
			return
		}
	}
}

// condition knocks a guard out by its condition; instructions, of which others
// come later, by the statement.
func (f *finder) condition(stmt ast.Stmt, prefix, text string, list []ast.Expr) {
	id := prefix + strings.Join(strings.Fields(text), " ")
	if strings.HasPrefix(id, "module body.") {
		if _, ok := f.path[len(f.path)-2].(*ast.CaseClause); ok {
			f.statement(stmt, id)
			return
		}
	}
	edits := make([]edit, 0, len(list))
	for _, e := range list {
		edits = append(edits, edit{f.offset(e.Pos()), f.offset(e.End()), fmt.Sprintf("(%s) && %s(%q)", f.text(e), hookName, id)})
	}
	for _, g := range f.guards {
		if g.edit[0].from == edits[0].from { // a second statement of one guard
			return
		}
	}
	f.found(stmt, id, edits...)
}

// statement knocks a guard out by its refusing statement.
func (f *finder) statement(stmt ast.Stmt, id string) {
	text := fmt.Sprintf("if %s(%q) { %s }", hookName, id, f.text(stmt))
	if _, ok := stmt.(*ast.ReturnStmt); ok {
		text += "\n" + f.nothing()
	}
	f.found(stmt, id, edit{f.offset(stmt.Pos()), f.offset(stmt.End()), text})
}

// nothing returns the zero values of the function around.
func (f *finder) nothing() string {
	for _, n := range slices.Backward(f.path) {
		var results *ast.FieldList
		switch fn := n.(type) {
		case *ast.FuncDecl:
			results = fn.Type.Results
		case *ast.FuncLit:
			results = fn.Type.Results
		default:
			continue
		}
		var zeros []string
		for _, r := range results.List {
			zero := "nil"
			switch text := f.text(r.Type); {
			case strings.HasPrefix(text, "int"), strings.HasPrefix(text, "uint"):
				zero = "0"
			case text == "string":
				zero = `""`
			case text == "bool":
				zero = "false"
			case text != "error" && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "*") && !strings.HasPrefix(text, "map"):
				zero = text + "{}"
			}
			for range max(1, len(r.Names)) {
				zeros = append(zeros, zero)
			}
		}
		return "return " + strings.Join(zeros, ", ")
	}
	return "return"
}
