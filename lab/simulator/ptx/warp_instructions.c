/* What the threads of a warp do together: shfl, vote, match, activemask. */
#include "meaning.h"

/* shfl.sync.mode.b32 d{|p}, a, b, c, mask */
bool parse_shuffle(struct parser *p, struct opcode *o, struct insn *i)
{
    static const char *const names[] = {"up", "down", "bfly", "idx"};
    enum type type;
    uint32_t mask;
    unsigned mode = 0;
    if (!take(o, "sync"))
        return refuse(p, "only the .sync form is supported");
    while (mode < 4 && !take(o, names[mode]))
        mode++;
    if (mode == 4 || !take_type(o, &type) || type != U32)
        return refuse(p, "no such form");
    if (!all_taken(p, o) || !parse_register(p, 4, false, &i->d[0]))
        return false;
    if (accept(p, '|') && !parse_register(p, 1, true, &i->q))
        return false;
    i->run = p->handlers->memory->shuffle[mode];
    return expect(p, ',') && parse_operand(p, U32, &i->a) && expect(p, ',') &&
           parse_operand(p, U32, &i->b) && expect(p, ',') && parse_operand(p, U32, &i->c) &&
           expect(p, ',') && parse_operand(p, U32, &mask);
}

/* vote.sync.mode.pred d, {!}a, mask and vote.sync.ballot.b32 */
bool parse_vote(struct parser *p, struct opcode *o, struct insn *i)
{
    static const char *const names[VOTES] = {"all", "any", "uni", "ballot"};
    enum type type;
    unsigned mode = 0;
    if (!take(o, "sync"))
        return refuse(p, "only the .sync form is supported");
    while (mode < VOTES && !take(o, names[mode]))
        mode++;
    bool is_ballot = mode == VOTE_BALLOT;
    if (mode == VOTES || !take_type(o, &type) || type != (is_ballot ? U32 : PRED))
        return refuse(p, "no such form");
    i->run = p->handlers->warp->vote[mode];
    if (!all_taken(p, o) || !parse_register(p, type_width(type), !is_ballot, &i->d[0]) || !expect(p, ','))
        return false;
    i->negate_c = accept(p, '!');
    return parse_operand(p, PRED, &i->a) && expect(p, ',') && parse_operand(p, U32, &i->e);
}

/* match.any.sync.b32 d, a, mask and match.all.sync.b32 d{|p}, a, mask; values of 64 bits too */
bool parse_match(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type type;
    bool any = take(o, "any"), all = take(o, "all");
    if (!take(o, "sync") || any == all || !take_type(o, &type) || (type != U32 && type != U64))
        return refuse(p, "no such form");
    i->run = any ? p->handlers->warp->match_any[type] : p->handlers->warp->match_all[type];
    if (!all_taken(p, o) || !parse_register(p, 4, false, &i->d[0]))
        return false;
    if (all && accept(p, '|') && !parse_register(p, 1, true, &i->q))
        return false;
    return expect(p, ',') && parse_operand(p, type, &i->a) && expect(p, ',') && parse_operand(p, U32, &i->e);
}

bool parse_active(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type type;
    if (!take_type(o, &type) || type != U32)
        return refuse(p, "activemask is of type .b32");
    i->run = p->handlers->warp->active;
    return all_taken(p, o) && parse_register(p, 4, false, &i->d[0]);
}
