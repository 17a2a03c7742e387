package schema_test
import ("testing";"time";"strings";"fmt";"runtime"
"github.com/carrelhost/carrel/host/schema"
"github.com/carrelhost/carrel/host/strictjson")
func TestZZ(t *testing.T){
 num:=strings.Repeat("9",18)
 uniq:=func(n int)string{ // colliding arrays
  var b strings.Builder; b.WriteString("[")
  for i:=0;i<n;i++{ if i>0{b.WriteString(",")}
   b.WriteString(`["`); for k:=0;k<13;k++{ b.WriteString("a"); if i>>k&1==1 {b.WriteString(`","`)} else {b.WriteString(`\u0004`)} }
   b.WriteString(`a"]`) }
  b.WriteString("]"); return b.String()}
 for _,c:=range []struct{n,s string; in func(k int)string}{
  {"nfa",`{"pattern":"(a?){200}(b?){200}a{400}c"}`,func(k int)string{return `"`+strings.Repeat("a",k)+`"`}},
  {"nfa2",`{"pattern":"([ab]*a[ab]{300}c)|([ab]*b[ab]{300}d)"}`,func(k int)string{return `"`+strings.Repeat("abba",k/4)+`"`}},
  {"enumnum",`{"items":{"enum":[`+num+strings.Repeat(","+num,1000)+`]}}`,func(k int)string{return "["+strings.Repeat("1,",k/2)+"1]"}},
  {"enumbig",`{"items":{"enum":[1e400`+strings.Repeat(",1e400",1000)+`]}}`,func(k int)string{return "["+strings.Repeat("1e399,",k/6)+"1]"}},
  {"enumstr",`{"items":{"enum":["a"`+strings.Repeat(`,"a"`,3000)+`]}}`,func(k int)string{return "["+strings.Repeat(`"b",`,k/4)+"1]"}},
  {"anyOf",`{"items":{"anyOf":[`+strings.TrimSuffix(strings.Repeat(`{"type":"null"},`,300),",")+`]}}`,func(k int)string{return "["+strings.Repeat("1,",k/2)+"1]"}},
  {"plain",`{"items":{"type":"string"}}`,func(k int)string{return "["+strings.Repeat("1,",k/2)+"1]"}},
  {"multiple",`{"items":{"multipleOf":`+strings.Repeat("123457",66)+`e-400}}`,func(k int)string{return "["+strings.Repeat(strings.Repeat("7654321",57)+"e400,",k/405)+"2]"}},
  {"min",`{"items":{"minimum":1e-400,"maximum":1e400,"exclusiveMinimum":1e-399}}`,func(k int)string{return "["+strings.Repeat("1e400,",k/6)+"2]"}},
  {"integer",`{"items":{"type":"integer"}}`,func(k int)string{return "["+strings.Repeat("1e400,",k/6)+"2]"}},
  {"unique",`{"uniqueItems":true}`,func(k int)string{return uniq(k/70)}},
  {"unique20",`{"items":{"uniqueItems":true}}`,func(k int)string{return "["+strings.Repeat("[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19],",k/52)+"1]"}},
  {"required",`{"items":{"required":["a"`+requireMany(3000)+`]}}`,func(k int)string{return "["+strings.Repeat("{},",k/3)+"{}]"}},
  {"pnames",`{"patternProperties":{"(a?){100}a{100}b":true}}`,func(k int)string{var b strings.Builder;b.WriteString("{");for i:=0;i<k/40;i++{if i>0{b.WriteString(",")};fmt.Fprintf(&b,`"aaaaaaaaaaaaaaaaaaaaaaaaaa%d":1`,i)};b.WriteString("}");return b.String()}},
  {"uneval",`{"unevaluatedProperties":false,"allOf":[`+strings.TrimSuffix(strings.Repeat(`{"properties":{"a":true}},`,60),",")+`]}`,func(k int)string{var b strings.Builder;b.WriteString("{");for i:=0;i<k/10;i++{if i>0{b.WriteString(",")};fmt.Fprintf(&b,`"k%d":1`,i)};b.WriteString("}");return b.String()}},
 }{
  t0:=time.Now(); s,err:=schema.Compile([]byte(c.s)); if err!=nil{t.Error(c.n,err);continue}; ct:=time.Since(t0)
  lo,hi:=1,1<<20
  for lo<hi-1 { m:=(lo+hi)/2; in:=c.in(m); v,err:=strictjson.Value([]byte(in),64); if err!=nil{t.Fatal(err)}
   if s.TooMuch(v,len(in)) {hi=m}else{lo=m} }
  in:=c.in(lo); v,_:=strictjson.Value([]byte(in),64)
  var a,b runtime.MemStats; runtime.ReadMemStats(&a)
  t0=time.Now(); err=s.Validate(v,len(in)); d:=time.Since(t0); runtime.ReadMemStats(&b)
  es:=fmt.Sprint(err); if len(es)>100{es=es[:100]}
  fmt.Printf("%-10s compile %v size %d: %v alloc %d MB %s\n",c.n,ct,len(in),d,(b.TotalAlloc-a.TotalAlloc)>>20,es)
 }
}
