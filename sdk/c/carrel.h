/* carrel.h: the C SDK for plugins of a Carrel host, ABI carrel/v1.
 *
 * C99, freestanding: it needs stdint.h and stddef.h, and no C library. Build
 * with clang and wasm-ld:
 *
 *   clang --target=wasm32 -std=c99 -O2 -ffreestanding -fno-builtin \
 *     -mbulk-memory -nostdlib -Wl,--no-entry -Wl,--stack-first \
 *     -Wl,-z,stack-size=65536 -o hello.wasm hello.c
 *
 * Every handler, tool or provider of default memory ids is an export without
 * parameters that returns 0 if it went well:
 *
 *   CARREL_EXPORT("greet") int32_t greet(void) { return carrel_output_text("hi"); }
 *
 * Each call starts from the state that the module had after its
 * initialisation: nothing that a call writes into variables outlives it. If
 * the manifest names a warm-up,
 *
 *   "warmup": { "method": "com.example.Hello.greet", "params": {} }
 *
 * the host calls that handler once, at upload, and each call starts from what
 * it left. carrel_call and carrel_emit answer CARREL_ENOSYS in it, nobody
 * reads what carrel_fail says, and generators that it seeds give each call the
 * same numbers: seed them in an export "carrel_wake", which runs first in each
 * call.
 *
 * A function that returns an int32_t returns 0 or a count, or a negative
 * carrel_errno. A refusal never ends the guest; carrel_last_error tells more.
 */
#ifndef CARREL_H
#define CARREL_H

#include <stddef.h>
#include <stdint.h>

#define CARREL_EXPORT(name) __attribute__((export_name(name), used))
#define CARREL_IMPORT(name) __attribute__((import_module("carrel/v1"), import_name(name)))

/* What the host answers, negated, when it refuses. These are the contract's
 * own numbers, not those of a C library. */
enum carrel_errno {
  CARREL_EINVAL = 1,
  CARREL_EPERM = 2,
  CARREL_ENOENT = 3,
  CARREL_E2BIG = 4,
  CARREL_ECANCELED = 5,
  CARREL_ETIMEDOUT = 6,
  CARREL_EBUSY = 7,
  CARREL_EQUOTA = 8,
  CARREL_EIO = 9,
  CARREL_ENOSYS = 10
};

enum carrel_level { CARREL_DEBUG = 0, CARREL_INFO = 1, CARREL_WARN = 2, CARREL_ERROR = 3 };

enum carrel_emit_kind { CARREL_TEXT = 0, CARREL_EVENT = 1 };

/* ---- The imports ------------------------------------------------------- */

/* Bytes of the call's input. */
CARREL_IMPORT("input_len") int32_t carrel_input_len(void);
/* Copies up to n bytes of the input from off; returns how many. */
CARREL_IMPORT("input_read") int32_t carrel_input_read(void *dst, int32_t off, int32_t n);
/* Appends to the call's result. CARREL_E2BIG at the cap. */
CARREL_IMPORT("output_write") int32_t carrel_output_write(const void *ptr, int32_t n);
/* Fails the call: JSON {"code": "[a-z_]{1,64}", "message": "..."}; the last counts. */
CARREL_IMPORT("error_set") int32_t carrel_error_set(const void *json, int32_t n);
/* Streams to the client. CARREL_ECANCELED when it is gone. */
CARREL_IMPORT("emit") int32_t carrel_emit(int32_t kind, const void *ptr, int32_t n);
/* Performs an operation: a result's handle << 32 | its length, or a negative
 * errno. carrel_do does this and reads the result. */
CARREL_IMPORT("call")
int64_t carrel_call(const void *op, int32_t opn, const void *req, int32_t reqn);
/* Opens a stream and returns its handle. */
CARREL_IMPORT("open")
int32_t carrel_open(const void *op, int32_t opn, const void *req, int32_t reqn);
/* The next frame: handle << 32 | length; 0 at the end. */
CARREL_IMPORT("next") int64_t carrel_next(int32_t stream);
/* Answers a frame. */
CARREL_IMPORT("send") int32_t carrel_send(int32_t stream, const void *ptr, int32_t n);
/* Frees a result, a frame or a stream. All die with the call. */
CARREL_IMPORT("close") int32_t carrel_close(int32_t handle);
/* Copies up to n bytes of a result or frame from off; returns how many. */
CARREL_IMPORT("read") int32_t carrel_read(int32_t handle, int32_t off, void *dst, int32_t n);
/* JSON of the last refusal: code, message, remedy. Copies up to cap bytes and
 * returns how long it is. */
CARREL_IMPORT("last_error") int32_t carrel_last_error(void *dst, int32_t cap);
/* Writes a line to the plugin's log; capped per call. */
CARREL_IMPORT("log") int32_t carrel_log(int32_t level, const void *ptr, int32_t n);
/* Milliseconds until the host stops the call. */
CARREL_IMPORT("deadline_ms") int64_t carrel_deadline_ms(void);
/* Wall clock, nanoseconds since 1970. */
CARREL_IMPORT("now_ns") int64_t carrel_now_ns(void);
/* Fills dst with bytes that nobody can guess. */
CARREL_IMPORT("random") int32_t carrel_random(void *dst, int32_t n);
/* 1 if the host knows this operation or feature. */
CARREL_IMPORT("feature") int32_t carrel_feature(const void *ptr, int32_t n);

/* ---- Helpers ----------------------------------------------------------- */

/* The symbolic name of an errno, positive or negative. */
static inline const char *carrel_errno_name(int32_t e) {
  switch (e < 0 ? -e : e) {
  case CARREL_EINVAL: return "EINVAL";
  case CARREL_EPERM: return "EPERM";
  case CARREL_ENOENT: return "ENOENT";
  case CARREL_E2BIG: return "E2BIG";
  case CARREL_ECANCELED: return "ECANCELED";
  case CARREL_ETIMEDOUT: return "ETIMEDOUT";
  case CARREL_EBUSY: return "EBUSY";
  case CARREL_EQUOTA: return "EQUOTA";
  case CARREL_EIO: return "EIO";
  case CARREL_ENOSYS: return "ENOSYS";
  default: return "EUNKNOWN";
  }
}

/* Bytes of a text without its final NUL. */
static inline int32_t carrel_len(const char *text) {
  int32_t n = 0;
  while (text[n] != '\0') n++;
  return n;
}

/* Reads the whole input into buf, which holds cap bytes, and returns its
 * length, or -CARREL_E2BIG if it does not fit. No NUL is added. */
static inline int32_t carrel_input(void *buf, int32_t cap) {
  int32_t n = carrel_input_len(), off = 0;
  if (n < 0) return n;
  if (n > cap) return -CARREL_E2BIG;
  while (off < n) {
    int32_t got = carrel_input_read((char *)buf + off, off, n - off);
    if (got < 0) return got;
    if (got == 0) return -CARREL_EIO;
    off += got;
  }
  return n;
}

/* Appends a NUL-terminated text to the result. */
static inline int32_t carrel_output_text(const char *text) {
  return carrel_output_write(text, carrel_len(text));
}

/* Logs a NUL-terminated text. */
static inline int32_t carrel_log_text(int32_t level, const char *text) {
  return carrel_log(level, text, carrel_len(text));
}

/* Appends n bytes to a JSON string that is being written to out at *at, which
 * holds cap bytes: quotes, backslashes and control characters are escaped.
 * Returns 0, or -CARREL_E2BIG if there is no room. */
static inline int32_t carrel_json_escape(char *out, int32_t cap, int32_t *at, const char *text, int32_t n) {
  static const char hex[] = "0123456789abcdef";
  for (int32_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    if (cap - *at < 6) return -CARREL_E2BIG;
    if (c == '"' || c == '\\') {
      out[(*at)++] = '\\';
      out[(*at)++] = (char)c;
    } else if (c < 0x20) {
      out[(*at)++] = '\\';
      out[(*at)++] = 'u';
      out[(*at)++] = '0';
      out[(*at)++] = '0';
      out[(*at)++] = hex[c >> 4];
      out[(*at)++] = hex[c & 15];
    } else {
      out[(*at)++] = (char)c;
    }
  }
  return 0;
}

/* Fails the call with a code of the plugin's own and a message for the caller,
 * both NUL-terminated; a message of more than about 1000 bytes is cut. Returns
 * 1, so that a handler can end with: return carrel_fail("no_order", "..."). */
static inline int32_t carrel_fail(const char *code, const char *message) {
  char json[6400]; /* 1000 bytes, each escaped, and what is around them */
  const int32_t body = (int32_t)sizeof json - 8;
  int32_t at = 0;
  const char *const parts[3] = {"{\"code\":\"", "\",\"message\":\"", "\"}"};
  for (int32_t i = 0; parts[0][i] != '\0'; i++) json[at++] = parts[0][i];
  (void)carrel_json_escape(json, 128, &at, code, carrel_len(code));
  for (int32_t i = 0; parts[1][i] != '\0'; i++) json[at++] = parts[1][i];
  int32_t n = carrel_len(message);
  if (n > 1000) {
    n = 1000;
    while (n > 0 && ((unsigned char)message[n] & 0xc0) == 0x80) n--; /* not inside a character */
  }
  (void)carrel_json_escape(json, body, &at, message, n);
  for (int32_t i = 0; parts[2][i] != '\0'; i++) json[at++] = parts[2][i];
  (void)carrel_error_set(json, at);
  return 1;
}

/* Performs an operation, such as "context" with "{}", reads its result into
 * buf, which holds cap bytes, frees it, and returns its length; or a negative
 * errno, -CARREL_E2BIG if the result does not fit. No NUL is added. */
static inline int32_t carrel_do(const char *op, const void *req, int32_t reqn, void *buf, int32_t cap) {
  int64_t r = carrel_call(op, carrel_len(op), req, reqn);
  if (r < 0) return (int32_t)r;
  int32_t handle = (int32_t)(r >> 32), n = (int32_t)(r & 0xffffffff), off = 0, bad = 0;
  if (n < 0 || n > cap) bad = -CARREL_E2BIG;
  while (bad == 0 && off < n) {
    int32_t got = carrel_read(handle, off, (char *)buf + off, n - off);
    if (got > 0) {
      off += got;
    } else {
      bad = got < 0 ? got : -CARREL_EIO;
    }
  }
  (void)carrel_close(handle);
  return bad != 0 ? bad : n;
}

#endif
