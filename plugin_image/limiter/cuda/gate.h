/* The compute gate: every launch passes it, and none waits there for ever. */
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

void gates_forget(const void *context); /* it is about to end */
void gates_in_child(void);              /* of a fork */

#endif
