#include "turn.h"

#define PATIENCE 4u /* quanta */

struct standing turn_standing(uint64_t time, unsigned weight, const struct rival *rivals, unsigned count)
{
    struct standing standing = {.mine = true, .least_time = UINT64_MAX};
    uint64_t longest = QUANTUM, weights = weight;
    for (unsigned i = 0; i < count; i++) {
        const struct rival *rival = &rivals[i];
        if (rival->time < standing.least_time) {
            standing.least_time = rival->time;
            standing.hungriest = i;
        }
        if (rival->time > standing.max_time)
            standing.max_time = rival->time;
        if (rival->time < time || (rival->time == time && rival->before))
            standing.mine = false;
        weights += rival->weight < 1 ? 1 : rival->weight > 100 ? 100 : rival->weight;
        longest = rival->batch > longest ? rival->batch : longest;
    }
    standing.patience = PATIENCE * longest * weights / weight;
    if (standing.patience > LONGEST_DRAIN)
        standing.patience = LONGEST_DRAIN;
    return standing;
}

uint64_t turn_joined(uint64_t time, unsigned weight, const struct standing *standing)
{
    uint64_t most = standing->max_time + (uint64_t)QUANTUM * 100 / weight;
    if (time <= standing->least_time)
        return standing->least_time + 1;
    return time < most ? time : most;
}

bool turn_is_active(uint64_t now, uint64_t changed_at, bool draining)
{
    return now - changed_at < (draining ? LONGEST_DRAIN : QUIET);
}

/* So many that a batch takes about a quantum; at most twice as many as before. */
unsigned turn_budget(unsigned launches, uint64_t nanoseconds)
{
    uint64_t wanted = nanoseconds == 0 ? MAX_BUDGET : (uint64_t)launches * QUANTUM / nanoseconds;
    uint64_t most = 2ull * launches < MAX_BUDGET ? 2ull * launches : MAX_BUDGET;
    wanted = wanted < most ? wanted : most;
    return wanted < 1 ? 1 : (unsigned)wanted;
}

/* What was not used for a quantum or longer is lost: a cap is no saving. */
uint64_t turn_ready(uint64_t ready, uint64_t begun, uint64_t nanoseconds, unsigned weight)
{
    uint64_t from = ready + QUANTUM > begun ? ready : begun - QUANTUM;
    return from + nanoseconds * 100 / weight;
}
