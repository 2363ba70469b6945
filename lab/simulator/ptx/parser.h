/* From PTX to code; shared by the files that read directives, operands and instructions. */
#ifndef DIVVY_PTX_PARSER_H
#define DIVVY_PTX_PARSER_H

#include "code.h"
#include "lexer.h"

/* An argument is a .param of a call: a place in local memory that caller and callee share. */
enum symbol_kind {
    IS_REGISTER, IS_PARAMETER, IS_ARGUMENT, IS_SHARED, IS_LOCAL, IS_VARIABLE, IS_LABEL, IS_FUNCTION, IS_PROTOTYPE
};

struct symbol {
    char *name;
    enum symbol_kind kind;
    bool defined;   /* labels are used before */
    uint8_t width;  /* of a register or an element of a variable, in bytes; predicates 1 */
    bool predicate;
    bool is_taken;  /* of a function: its address is used */
    unsigned level; /* of the scope it belongs to */
    uint64_t value; /* offset, address or code position */
    uint64_t size, align;                /* of shared memory and of arguments */
    const struct ptx_kernel *placed_in;  /* shared memory has a place in each kernel that uses it */
    struct symbol *next;
};

#define BUCKETS 4096
#define MODULE_LEVEL 1

struct body { /* text that is read when all that it can name is known */
    struct lexer at;   /* behind .entry or .func */
    struct token name; /* of a function */
    bool is_kernel, is_open; /* open: it is being read, further up the chain of calls */
    struct body *next;
};

#define MAX_ARGUMENTS 64
struct arguments { /* of a call: .param variables of the caller */
    const struct symbol *symbols[MAX_ARGUMENTS];
    unsigned count;
};

struct parser {
    struct lexer lexer;
    struct ptx_module *module;
    struct ptx_kernel *kernel; /* within a kernel */
    struct body *bodies;       /* in the order of the text */
    struct symbol *buckets[BUCKETS];
    unsigned level;
    unsigned body_level;         /* the level of the labels of the kernel or function at hand */
    struct symbol *return_label; /* of the function at hand; NULL in a kernel */
    unsigned capability;
    enum ptx_problem problem;
    char *message;
    size_t message_size;
    char opcode[64]; /* at hand */
    unsigned line;   /* of the instruction at hand */
    const struct handlers *handlers;
    uint32_t carry; /* the carry flag of the kernel at hand; NO_REGISTER before its first use */
    bool seen_version;
};

/* parser.c */
bool refuse(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool expect(struct parser *p, char mark);
bool accept(struct parser *p, char mark);
void token_copy(const struct token *token, char *target, size_t size);

bool parse_body(struct parser *p);

struct opcode;

/* symbols.c */
struct symbol *symbol_find(struct parser *p, const struct token *token);
struct symbol *symbol_add(struct parser *p, const struct token *token, enum symbol_kind kind);
struct symbol *symbol_label(struct parser *p, const struct token *token);
void symbols_leave(struct parser *p, unsigned level); /* forget what is deeper than `level` */

/* bodies.c */
bool note_body(struct parser *p, bool is_kernel);
bool parse_kernels(struct parser *p);
bool parse_call(struct parser *p, struct opcode *o, struct insn *i);
bool parse_arguments(struct parser *p, struct arguments *list);
bool expand_call(struct parser *p, const struct insn *call, struct body *function, const struct arguments *results,
                 const struct arguments *arguments);
void bodies_free(struct parser *p);

/* indirect_calls.c */
bool add_function_address(struct parser *p, const struct token *name);
void find_taken_addresses(struct parser *p, struct lexer at);
bool parse_prototype(struct parser *p, const struct token *name);
bool parse_indirect_call(struct parser *p, const struct insn *call, const struct arguments *results);

/* printing.c */
bool parse_print(struct parser *p, const struct insn *call, const struct arguments *results,
                 const struct arguments *arguments);

/* declarations.c */
bool parse_registers(struct parser *p);
bool parse_variable(struct parser *p, enum space space);
bool parse_parameter(struct parser *p, struct token *name, uint64_t *align, uint64_t *size);
bool parse_parameters(struct parser *p);
bool place_shared(struct parser *p, struct symbol *symbol);
bool type_of_word(const char *word, enum type *type);

/* directives.c */
bool parse_version(struct parser *p);
bool parse_target(struct parser *p);
bool parse_performance_directive(struct parser *p);
bool parse_pragma(struct parser *p);
bool skip_line(struct parser *p);
bool skip_braces(struct parser *p);

/* operands.c */
uint32_t new_register(struct parser *p, unsigned width);
bool parse_register(struct parser *p, unsigned width, bool predicate, uint32_t *offset);
bool parse_any_register(struct parser *p, uint32_t *offset, unsigned *width);
bool parse_operand(struct parser *p, enum type type, uint32_t *offset);
bool parse_wide_operand(struct parser *p, enum type type, uint32_t *offset, unsigned *width);
bool parse_address(struct parser *p, struct insn *i);
bool parse_constant(struct parser *p, int64_t *value);
uint32_t constant_register(struct parser *p, unsigned width, uint64_t value);

/* instructions.c */
bool parse_instruction(struct parser *p);
struct insn *emit(struct parser *p);

/* opcodes.c: words between the dots */
struct opcode {
    char base[24];
    char modifier[12][28];
    bool used[12];
    unsigned count;
};
bool opcode_split(struct parser *p, struct opcode *o); /* of p->opcode */
bool take(struct opcode *o, const char *modifier);
bool take_type(struct opcode *o, enum type *type); /* the first that is left */
bool all_taken(struct parser *p, const struct opcode *o);

/* sleep.c */
bool parse_sleep(struct parser *p, struct opcode *o, struct insn *i);

/* memory_instructions.c */
bool parse_load_store(struct parser *p, struct opcode *o, struct insn *i, bool store);
bool parse_atomic(struct parser *p, struct opcode *o, struct insn *i, bool has_result);
bool parse_cvta(struct parser *p, struct opcode *o, struct insn *i);

#endif
