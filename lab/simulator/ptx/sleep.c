/* nanosleep: takes GPU time and no processor's. */
#include "parser.h"

#define MAX_SLEEP 1000000u /* PTX ISA: at most a millisecond */

/* Threads of a warp sleep together, so the group sleeps as long as the one that sleeps longest. */
static void sleep_group(struct exec *x, const struct insn *i)
{
    const uint32_t *nanoseconds = REG(uint32_t, i->a);
    uint32_t longest = 0;
    for (unsigned n = 0; n < x->n; n++) {
        uint32_t wanted = nanoseconds[x->full ? n : x->list[n]];
        longest = wanted > longest ? wanted : longest;
    }
    x->slept += longest < MAX_SLEEP ? longest : MAX_SLEEP;
}

bool parse_sleep(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type type;
    if (!take_type(o, &type) || type != U32)
        return refuse(p, "nanosleep is of type .u32");
    i->run = sleep_group;
    return all_taken(p, o) && parse_operand(p, U32, &i->a);
}
