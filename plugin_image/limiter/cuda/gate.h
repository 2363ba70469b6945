/* The compute gate: every launch passes it, and none waits there for ever. */
#ifndef DIVVY_GATE_H
#define DIVVY_GATE_H

#include <stdbool.h>

struct gate;

void gate_pass(void); /* before a launch in the current context */

/* Before and after a call that waits for the GPU; `all`: for everything that was launched. */
struct gate *gate_synchronises(void);
void gate_synchronised(struct gate *gate, bool all);

/* A capture begins (1) or ends (-1): what is launched meanwhile does not run. */
void gate_captures(int more);

#endif
