/* The compute gate: every launch passes it, and none waits there forever. */
#ifndef DIVVY_GATE_H
#define DIVVY_GATE_H

#include <stdbool.h>

#include "cuda.h"

struct gate;

/* Before and after a launch into a stream of the current context. */
struct gate *gate_pass(CUstream stream);
void gate_passed(struct gate *gate, CUstream stream);

/* Before and after a call that waits for the GPU; `all`: for everything that was launched. */
struct gate *gate_synchronises(void);
void gate_synchronised(struct gate *gate, bool all);

/* Before and after a call that may end a context. */
void gates_end(const void *context);
void gates_ended(const void *context, bool gone);

void gates_in_child(void);              /* of a fork */

#endif
