// A guest that knows the guest ABI's specification and nothing else: no SDK, no
// header of ours, no libc. Its function `shout` answers with its input's bytes,
// small letters made capital, and then with the method that it runs as, which
// it asks the host for. Build it, in this folder, with:
//
//   clang --target=wasm32 -nostdlib -O2 -Wl,--no-entry -Wl,--strip-all \
//     -Wl,--export=shout -o alone.wasm alone.c
//
// The manifest travels apart: manifest.json.

#define IMPORT(name) __attribute__((import_module("carrel/v1"), import_name(#name)))
#define N 4096

IMPORT(input_len) int input_len(void);
IMPORT(input_read) int input_read(void *dst, int off, int n);
IMPORT(output_write) int output_write(const void *p, int n);
IMPORT(error_set) int error_set(const void *p, int n);
IMPORT(call) long long call(const void *op, int opn, const void *req, int reqn);
IMPORT(read) int read_result(int handle, int off, void *dst, int n);
IMPORT(close) int close_handle(int handle);

static char buffer[N];

int shout(void) {
  int n = input_len();
  if (n > N) {
    static const char tooLong[] = "{\"code\":\"too_long\",\"message\":\"at most 4096 bytes\"}";
    error_set(tooLong, sizeof tooLong - 1);
    return 1;
  }
  n = input_read(buffer, 0, n);
  for (int i = 0; i < n; i++)
    if (buffer[i] >= 'a' && buffer[i] <= 'z')
      buffer[i] -= 'a' - 'A';
  output_write(buffer, n);

  long long result = call("context", 7, "{}", 2);
  if (result < 0)
    return 2;
  int handle = result >> 32, length = (int)result;
  for (int off = 0; off < length;) {
    int got = read_result(handle, off, buffer, N);
    if (got <= 0)
      return 3;
    output_write(buffer, got);
    off += got;
  }
  return close_handle(handle);
}
