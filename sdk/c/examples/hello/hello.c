/* A plugin in C. What it offers is declared in manifest.json: a chat method,
 * which the host runs by itself, and the handlers below. */
#include "carrel.h"

/* All of the input must fit: a host's own limit for params is larger. */
static char input[16 * 1024];
static char result[16 * 1024];

/* echo returns its params as they came: a JSON object is its output. */
CARREL_EXPORT("echo") int32_t echo(void) {
  int32_t n = carrel_input(input, sizeof input);
  if (n < 0) return carrel_fail("too_large", "the params are larger than 16 KiB");
  return carrel_output_write(input, n);
}

/* whoami asks the host who runs this for whom, and returns the answer. */
CARREL_EXPORT("whoami") int32_t whoami(void) {
  int32_t n = carrel_do("context", "{}", 2, result, sizeof result);
  if (n < 0) {
    carrel_log_text(CARREL_ERROR, "the host refused to tell the context");
    return carrel_fail("no_context", carrel_errno_name(n));
  }
  return carrel_output_write(result, n);
}
