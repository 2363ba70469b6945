/* Words of PTX. */
#ifndef DIVVY_PTX_LEXER_H
#define DIVVY_PTX_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_INTEGER, TOKEN_FLOAT, TOKEN_STRING, TOKEN_MARK };

struct token {
    enum token_kind kind;
    const char *text;
    size_t length;
    unsigned line;
    char mark;
    uint64_t integer;
    double number;
    bool exact_f32, exact_f64; /* 0f… and 0d…: bits in `integer` */
};

struct lexer {
    const char *at, *end;
    unsigned line;
    struct token token; /* the current one */
    bool broken;        /* something that is no word of PTX */
};

/* A word for "%.*s"; the beginning is enough of one that a compiler has made thousands of letters long. */
#define SHOWN(token) (int)((token).length < 100 ? (token).length : 100), (token).text

void lexer_start(struct lexer *lexer, const char *text, size_t length);
void lexer_next(struct lexer *lexer);
bool lexer_split(struct lexer *lexer, const char *word); /* .reg.b8 is .reg and .b8; true if that was .reg */
bool token_is(const struct token *token, const char *word);
bool token_is_mark(const struct token *token, char mark);

#endif
