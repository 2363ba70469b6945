/* PTX made ready to run: instructions over a register file that lies thread by thread.
 *
 * A register has an offset; register r of thread t is at offset * lanes + t * width, so that one
 * instruction runs over all threads of a block in one simple loop. Immediates and special
 * registers are registers that are filled before a block starts.
 */
#ifndef DIVVY_PTX_CODE_H
#define DIVVY_PTX_CODE_H

#include "ptx.h"

enum type { U8, U16, U32, U64, S8, S16, S32, S64, F16, BF16, F16X2, BF16X2, F32, F64, PRED, TYPES };

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM, SPACE_CONST };

/* Generic addresses of shared and local memory; no allocation is there. */
#define SHARED_WINDOW 0xA000000000000000u
#define LOCAL_WINDOW 0xB000000000000000u
#define WINDOW_SIZE 0x0000000100000000u

#define MAX_THREADS 1024
#define NO_REGISTER 0xFFFFFFFFu

enum control { STRAIGHT, BRANCH, LEAVE, BARRIER, TRAP };
#define TRAP_ASSERT 1u
enum boolean { BOOLEAN_NONE, BOOLEAN_AND, BOOLEAN_OR, BOOLEAN_XOR };

struct exec;
struct insn;
struct symbol;
typedef void (*op_fn)(struct exec *x, const struct insn *i);

struct insn {
    op_fn run;
    op_fn nearest; /* what runs under another rounding */
    uint32_t d[4]; /* destinations; of a store its sources */
    uint32_t a, b, c, e;
    uint32_t q; /* second predicate of setp, NO_REGISTER for none */
    uint32_t guard;
    bool guarded, guard_negated;
    bool negate_c; /* setp: the predicate it combines with */
    bool address_is_narrow, parameter_at_register;
    uint8_t control, boolean, space, count, width, mode;
    uint32_t target, line, number;
    int64_t offset;
    const struct symbol *label; /* of a branch, until the place is known */
};

enum special {
    TID_X, TID_Y, TID_Z, NTID_X, NTID_Y, NTID_Z, CTAID_X, CTAID_Y, CTAID_Z, NCTAID_X, NCTAID_Y,
    NCTAID_Z, LANEID, WARPID, NWARPID, SMID, NSMID, GRIDID, LANEMASK_EQ, LANEMASK_LE, LANEMASK_LT,
    LANEMASK_GE, LANEMASK_GT, SPECIALS
};

struct filled { /* a register that has its value before the first instruction */
    uint32_t offset;
    uint8_t width;
    enum filling { WITH_VALUE, WITH_SPECIAL, WITH_DYNAMIC_SHARED } with;
    uint64_t value; /* or enum special, or what is added to where dynamic shared memory begins */
};

struct parameter {
    char *name;
    size_t offset, size;
};

struct ptx_kernel {
    struct ptx_module *module;
    char *name;
    struct insn *code;
    uint32_t length, room;
    struct parameter *parameters;
    unsigned parameter_count;
    size_t parameter_bytes;
    uint32_t register_bytes; /* of one thread */
    unsigned register_count;
    struct filled *filled;
    unsigned filled_count;
    unsigned shared_bytes, local_bytes, max_threads;
    unsigned dynamic_align; /* of dynamic shared memory; 0 if there is none */
    struct ptx_kernel *next;
};

struct variable { /* in global or constant memory */
    char *name;
    uint8_t *memory; /* in the block, aligned */
    void *block;
    uint64_t size;
    struct variable *next;
};

struct ptx_module {
    unsigned target;
    struct ptx_kernel *kernels;
    struct variable *variables;
};

struct range {
    uint64_t begin, end;
};

/* One block at work. */
struct exec {
    const struct ptx_launch *launch;
    const struct ptx_kernel *kernel;
    struct ptx_module *module;
    uint8_t *registers;
    unsigned lanes;   /* threads of a block, rounded up */
    unsigned threads; /* of a block */
    /* The threads that the current instruction is for: all of them, or `list`. */
    bool full;
    unsigned n;
    const uint16_t *list;
    uint64_t *address; /* scratch: what each thread's access resolved to */
    uint8_t *outcome;  /* scratch: result of a comparison */
    uint8_t *shared, *local;
    unsigned shared_size;
    struct range *ranges; /* per instruction: the allocation it last touched */
    enum ptx_stop stop;
    uint64_t bad_address;
    uint64_t spoil;
    uint64_t slept; /* nanoseconds, by this block */
};

#define REG(type, operand) ((type *)(void *)(x->registers + (size_t)(operand) * x->lanes))

/* Do `body` for each thread `t` of the group. Threads are independent of each other. */
#define EACH(...)                                                \
    do {                                                         \
        const unsigned count_ = x->n;                            \
        if (x->full) {                                           \
            _Pragma("GCC ivdep") for (unsigned t = 0; t < count_; t++) \
            {                                                    \
                __VA_ARGS__;                                     \
            }                                                    \
        } else {                                                 \
            const uint16_t *list_ = x->list;                     \
            for (unsigned i_ = 0; i_ < count_; i_++) {           \
                unsigned t = list_[i_];                          \
                __VA_ARGS__;                                     \
            }                                                    \
        }                                                        \
    } while (0)

/* Handlers by type; NULL where PTX (or the subset) has none. Compiled once for any processor and
 * once for those with AVX2 and FMA. */
enum comparison { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN_, COMPARISONS };
enum atomic { ATOM_ADD, ATOM_MIN, ATOM_MAX, ATOM_EXCH, ATOM_CAS, ATOM_AND, ATOM_OR, ATOM_XOR, ATOM_INC,
              ATOM_DEC, ATOMICS };
enum rounding { ROUND_NONE, ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP };
#define MODE_SATURATE 8u

struct arithmetic {
    op_fn mov[TYPES], add[TYPES], sub[TYPES], mul[TYPES], mul_hi[TYPES], mul_wide[TYPES];
    op_fn mad[TYPES], mad_hi[TYPES], mad_wide[TYPES], div[TYPES], rem[TYPES];
    op_fn abs[TYPES], neg[TYPES], min[TYPES], max[TYPES];
    op_fn bit_and[TYPES], bit_or[TYPES], bit_xor[TYPES], bit_not[TYPES], shl[TYPES], shr[TYPES];
    op_fn popc[TYPES], clz[TYPES], bfind[TYPES], bfind_shift[TYPES], brev[TYPES], bfe[TYPES], bfi[TYPES], selp[TYPES], prmt, lop3, shf;
};

struct floating {
    op_fn sqrt[TYPES], rcp[TYPES], rsqrt[TYPES], sin[TYPES], cos[TYPES], lg2[TYPES], ex2[TYPES], tanh[TYPES];
};

/* Sums and products of more than one word: the carry goes from one instruction to the next. */
#define CARRY_IN 1u
#define CARRY_OUT 2u
struct carrying {
    op_fn add[TYPES], sub[TYPES], mad[TYPES], mad_hi[TYPES];
};

enum vote { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT, VOTES };
struct warp { /* what a warp's threads find out together */
    op_fn vote[VOTES], match_any[TYPES], match_all[TYPES], active;
};

struct comparing {
    op_fn setp[COMPARISONS][TYPES];
};

struct converting {
    op_fn cvt[TYPES][TYPES]; /* [to][from] */
    op_fn pair[TYPES];       /* of two f32 */
    op_fn to_shared_window, to_local_window, from_shared_window, from_local_window;
};

struct memory_access {
    op_fn load[TYPES][9], store[TYPES][9]; /* by the register's width */
    op_fn load_param[TYPES][9];
    op_fn atomic[ATOMICS][TYPES];
    op_fn shuffle[4]; /* up, down, bfly, idx */
};

struct handlers {
    const struct arithmetic *arithmetic;
    const struct floating *floating;
    const struct comparing *comparing;
    const struct converting *converting;
    const struct memory_access *memory;
    const struct carrying *carrying;
    const struct warp *warp;
    /* Floats of 16 bits, alone and in pairs. */
    const struct arithmetic *half_arithmetic;
    const struct floating *half_floating;
    const struct converting *half_converting;
};
const struct handlers *handlers_for_this_processor(void);

unsigned type_width(enum type type);
bool type_is_half(enum type type);

#endif
