package abi

// Imports returns every function of Module that a guest may import, in the
// order of the specification. The caller owns the result.
func Imports() []Func {
	return []Func{
		{"input_len", nil, vals(I32)},
		{"input_read", vals(I32, I32, I32), vals(I32)},
		{"output_write", vals(I32, I32), vals(I32)},
		{"error_set", vals(I32, I32), vals(I32)},
		{"emit", vals(I32, I32, I32), vals(I32)},
		{"call", vals(I32, I32, I32, I32), vals(I64)},
		{"open", vals(I32, I32, I32, I32), vals(I32)},
		{"next", vals(I32), vals(I64)},
		{"send", vals(I32, I32, I32), vals(I32)},
		{"close", vals(I32), vals(I32)},
		{"read", vals(I32, I32, I32, I32), vals(I32)},
		{"last_error", vals(I32, I32), vals(I32)},
		{"log", vals(I32, I32, I32), vals(I32)},
		{"deadline_ms", nil, vals(I64)},
		{"now_ns", nil, vals(I64)},
		{"random", vals(I32, I32), vals(I32)},
		{"feature", vals(I32, I32), vals(I32)},
	}
}

// WASIImports returns every function of WASIModule with its standard
// signature (WASI preview 1). Those that the host does not implement answer
// ENOSYS (52) at run time; importing them is no fault. The caller owns the
// result.
func WASIImports() []Func {
	return []Func{
		{"args_get", vals(I32, I32), vals(I32)},
		{"args_sizes_get", vals(I32, I32), vals(I32)},
		{"environ_get", vals(I32, I32), vals(I32)},
		{"environ_sizes_get", vals(I32, I32), vals(I32)},
		{"clock_res_get", vals(I32, I32), vals(I32)},
		{"clock_time_get", vals(I32, I64, I32), vals(I32)},
		{"fd_advise", vals(I32, I64, I64, I32), vals(I32)},
		{"fd_allocate", vals(I32, I64, I64), vals(I32)},
		{"fd_close", vals(I32), vals(I32)},
		{"fd_datasync", vals(I32), vals(I32)},
		{"fd_fdstat_get", vals(I32, I32), vals(I32)},
		{"fd_fdstat_set_flags", vals(I32, I32), vals(I32)},
		{"fd_fdstat_set_rights", vals(I32, I64, I64), vals(I32)},
		{"fd_filestat_get", vals(I32, I32), vals(I32)},
		{"fd_filestat_set_size", vals(I32, I64), vals(I32)},
		{"fd_filestat_set_times", vals(I32, I64, I64, I32), vals(I32)},
		{"fd_pread", vals(I32, I32, I32, I64, I32), vals(I32)},
		{"fd_prestat_get", vals(I32, I32), vals(I32)},
		{"fd_prestat_dir_name", vals(I32, I32, I32), vals(I32)},
		{"fd_pwrite", vals(I32, I32, I32, I64, I32), vals(I32)},
		{"fd_read", vals(I32, I32, I32, I32), vals(I32)},
		{"fd_readdir", vals(I32, I32, I32, I64, I32), vals(I32)},
		{"fd_renumber", vals(I32, I32), vals(I32)},
		{"fd_seek", vals(I32, I64, I32, I32), vals(I32)},
		{"fd_sync", vals(I32), vals(I32)},
		{"fd_tell", vals(I32, I32), vals(I32)},
		{"fd_write", vals(I32, I32, I32, I32), vals(I32)},
		{"path_create_directory", vals(I32, I32, I32), vals(I32)},
		{"path_filestat_get", vals(I32, I32, I32, I32, I32), vals(I32)},
		{"path_filestat_set_times", vals(I32, I32, I32, I32, I64, I64, I32), vals(I32)},
		{"path_link", vals(I32, I32, I32, I32, I32, I32, I32), vals(I32)},
		{"path_open", vals(I32, I32, I32, I32, I32, I64, I64, I32, I32), vals(I32)},
		{"path_readlink", vals(I32, I32, I32, I32, I32, I32), vals(I32)},
		{"path_remove_directory", vals(I32, I32, I32), vals(I32)},
		{"path_rename", vals(I32, I32, I32, I32, I32, I32), vals(I32)},
		{"path_symlink", vals(I32, I32, I32, I32, I32), vals(I32)},
		{"path_unlink_file", vals(I32, I32, I32), vals(I32)},
		{"poll_oneoff", vals(I32, I32, I32, I32), vals(I32)},
		{"proc_exit", vals(I32), nil},
		{"proc_raise", vals(I32), vals(I32)},
		{"random_get", vals(I32, I32), vals(I32)},
		{"sched_yield", nil, vals(I32)},
		{"sock_accept", vals(I32, I32, I32), vals(I32)},
		{"sock_recv", vals(I32, I32, I32, I32, I32, I32), vals(I32)},
		{"sock_send", vals(I32, I32, I32, I32, I32), vals(I32)},
		{"sock_shutdown", vals(I32, I32), vals(I32)},
	}
}

func vals(v ...ValType) []ValType { return v }
