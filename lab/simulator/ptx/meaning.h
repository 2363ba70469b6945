/* What an opcode means: its form, and where its handlers are. */
#ifndef DIVVY_PTX_MEANING_H
#define DIVVY_PTX_MEANING_H

#include "parser.h"

/* A form: how the operands of an opcode are laid out. */
enum form {
    UNARY, BINARY, SHIFT, TERNARY, MULTIPLY, MULTIPLY_ADD, FUNCTION, COUNT_BITS, EXTRACT, INSERT, SELECT,
    COMPARE, CONVERT, MOVE, CONVERT_ADDRESS, LOAD, STORE, ATOMIC_RESULT, ATOMIC_ONLY, SHUFFLE, PERMUTE,
    LOGIC3, FUNNEL, CARRY, VOTE, MATCH, ACTIVE, JUMP, CALL, RETURN, LEAVE_KERNEL, WAIT, STOP, SLEEP, NOTHING
};

struct meaning {
    const char *base;
    enum form form;
    size_t table; /* of a handler array within struct arithmetic or floating */
};

/* arithmetic_instructions.c */
bool parse_plain(struct parser *p, struct opcode *o, const struct meaning *m, struct insn *i);
bool parse_multiply(struct parser *p, struct opcode *o, bool add, struct insn *i);
bool parse_compare(struct parser *p, struct opcode *o, struct insn *i);
bool parse_three_words(struct parser *p, struct opcode *o, struct insn *i, enum form form);

/* rounding.c */
enum rounding take_rounding(struct opcode *o);
void round_result(struct insn *i, enum rounding rounding);

/* carry_instructions.c */
bool parse_carry(struct parser *p, struct opcode *o, const struct meaning *m, struct insn *i);
bool takes_carry(const struct opcode *o);

/* warp_instructions.c */
bool parse_vote(struct parser *p, struct opcode *o, struct insn *i);
bool parse_match(struct parser *p, struct opcode *o, struct insn *i);
bool parse_active(struct parser *p, struct opcode *o, struct insn *i);
bool parse_shuffle(struct parser *p, struct opcode *o, struct insn *i);

/* half_instructions.c */
struct conversion {
    enum type to, from;
    unsigned integer_mode; /* enum rounding, to a whole number */
    bool nearest, toward_zero, saturate;
};
bool parse_half_conversion(struct parser *p, const struct conversion *c, struct insn *i);
bool widen_operands(struct parser *p, enum type type, const struct insn *i); /* of a comparison */

/* data_instructions.c */
bool parse_convert(struct parser *p, struct opcode *o, struct insn *i);
bool parse_move(struct parser *p, struct opcode *o, struct insn *i);

#endif
