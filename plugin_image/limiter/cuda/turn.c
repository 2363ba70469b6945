#include "turn.h"

#define PATIENCE 4u        /* quanta */
#define MAX_DOUBLINGS 10u

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static uint64_t sum(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

unsigned turn_weight(unsigned claimed)
{
    return claimed < 1 ? 1 : claimed > 100 ? 100 : claimed;
}

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
        weights += turn_weight(rival->weight);
        longest = rival->batch > longest ? rival->batch : longest;
    }
    longest = least(longest, LONGEST_DRAIN); /* so that the product stays below 2^64 */
    standing.patience = least(PATIENCE * longest * weights / weight, LONGEST_DRAIN);
    return standing;
}

uint64_t turn_joined(uint64_t time, unsigned weight, const struct standing *standing)
{
    uint64_t most = sum(standing->max_time, (uint64_t)QUANTUM * 100 / weight);
    if (time <= standing->least_time)
        return sum(standing->least_time, 1);
    return least(time, most);
}

/* A weight of 1 per cent makes a hundred of every nanosecond. */
bool turn_is_possible(uint64_t time, uint64_t now)
{
    return time / 100 <= sum(now, LONGEST_DRAIN);
}

bool turn_is_active(uint64_t now, uint64_t changed_at, bool waiting)
{
    return now - changed_at < (waiting ? LONGEST_DRAIN : QUIET);
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

unsigned turn_rivals_weight(unsigned weight, unsigned active, unsigned idle)
{
    unsigned left = weight + idle < 100 ? 100 - weight - idle : 0;
    unsigned most = left > weight ? left : weight;
    return active < most ? active : most;
}

/* Who has used 30 waits 70 for rivals of 70, and a quarter more for the changes of turns. */
int64_t turn_credit(int64_t credit, uint64_t nanoseconds, unsigned weight, unsigned rivals_weight)
{
    int64_t earned = (int64_t)(least(nanoseconds, LONGEST_DRAIN) * 5 * rivals_weight / (4 * weight));
    return credit < MAX_CREDIT - earned ? credit + earned : MAX_CREDIT;
}

uint64_t turn_exclusion(unsigned vain)
{
    return (uint64_t)PATIENCE * QUANTUM << (vain < MAX_DOUBLINGS ? vain : MAX_DOUBLINGS);
}
