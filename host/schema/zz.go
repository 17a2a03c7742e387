package schema
func (s *Schema) TooMuch(v any,size int) bool { return s.weight.work(int64(size),int64(values(v))) > MaxWork || times(s.weight.evaluations, int64(values(v))) > MaxEvaluations }
