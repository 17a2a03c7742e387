package abi

// Op names an operation of the `call` and `open` imports. A new power is a
// new op, never a new import.
type Op string

// The operations of carrel/v1.
const (
	OpContext         Op = "context"
	OpInvoke          Op = "invoke"
	OpModelGenerate   Op = "model.generate"
	OpMemoryDefaultID Op = "memory.default_id"
	OpMemoryMessages  Op = "memory.messages"
	OpMemoryAppend    Op = "memory.append"
	OpMemoryDelete    Op = "memory.delete"
	OpMemoryList      Op = "memory.list"
	OpKVGet           Op = "kv.get"
	OpKVPut           Op = "kv.put"
	OpKVDelete        Op = "kv.delete"
	OpKVList          Op = "kv.list"
	OpKVCAS           Op = "kv.cas"
	OpHTTPFetch       Op = "http.fetch"
	OpConfigGet       Op = "config.get"
)

// Ops returns every operation, in the order of the specification. The caller
// owns the result.
func Ops() []Op {
	return []Op{
		OpContext, OpInvoke, OpModelGenerate,
		OpMemoryDefaultID, OpMemoryMessages, OpMemoryAppend, OpMemoryDelete, OpMemoryList,
		OpKVGet, OpKVPut, OpKVDelete, OpKVList, OpKVCAS,
		OpHTTPFetch, OpConfigGet,
	}
}
