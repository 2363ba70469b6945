/* Requirements of images against drivers, and texts that are no JSON; run under sanitizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "require.h"

static int wrong;

struct vector {
    const char *expression;
    struct given given;
    enum verdict verdict;
    bool by_compat;
};

#define CUDA_12_4 "12.4", "550.163.01"
static const struct given A100 = {CUDA_12_4, "nvidia", "8.0", 0};
static const struct given A100_WITH_570 = {CUDA_12_4, "nvidia", "8.0", 570};
static const struct given A100_WITH_580 = {"12.4", "550.163.01", "nvidia", "8.0", 580};
static const struct given A100_WITH_550 = {CUDA_12_4, "nvidia", "8.0", 550};
static const struct given GEFORCE_WITH_580 = {CUDA_12_4, "geforce", "8.9", 580};
static const struct given T4_470 = {"11.4", "470.223.02", "tesla", "7.5", 0};
static const struct given T4_470_WITH_550 = {"11.4", "470.223.02", "tesla", "7.5", 550};
static const struct given OLD = {"10.2", "440.118.02", "tesla", "7.0", 0};
static const struct given UNKNOWN = {"", "", "", "", 0};

#define IMAGE_12_4                                                                                 \
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "          \
    "brand=nvidia,driver>=470,driver<471 brand=geforce,driver>=470,driver<471"

static void requirements(void)
{
    const struct vector all[] = {
        {"cuda>=12.4", A100, MET, false},
        {"cuda>=11.0", A100, MET, false},
        /* the same major version: minor version compatibility */
        {"cuda>=12.8", A100, MET, false},
        {"cuda>12.4", A100, MET, false},
        {"cuda>=13.0", A100, NOT_MET, false},
        {"cuda>=10.3", OLD, NOT_MET, false}, /* none before CUDA 11 */
        {"cuda=12.8", A100, NOT_MET, false},
        {"cuda<12.0", A100, NOT_MET, false},
        {"cuda!=12.4", A100, NOT_MET, false},
        {"cuda=12.4.0", A100, MET, false},
        {"cuda<=12.4", A100, MET, false},
        /* the image's own cuda-compat */
        {"cuda>=13.0", A100_WITH_580, MET, true},
        {"cuda>=12.8", A100_WITH_570, MET, false},
        {"cuda>=13.0", A100_WITH_550, NOT_MET, false},
        {"cuda>=13.0", GEFORCE_WITH_580, NOT_MET, false},
        /* a blank is an OR, a comma an AND */
        {IMAGE_12_4, A100, MET, false},
        {IMAGE_12_4, T4_470, MET, false},
        {IMAGE_12_4, T4_470_WITH_550, MET, true},
        {IMAGE_12_4, OLD, NOT_MET, false},
        {"cuda>=13.0 cuda>=12.0,arch>=9.0", A100, NOT_MET, false},
        {"cuda>=13.0 cuda>=12.0,arch>=8.0", A100, MET, false},
        {"  cuda>=12.0   ", A100, MET, false},
        {"", A100, MET, false},
        {"brand=nvidia", A100, MET, false},
        {"brand!=nvidia", A100, NOT_MET, false},
        {"driver>=550.163", A100, MET, false},
        {"driver>=550.163.02", A100, NOT_MET, false},
        {"driver<v551", A100, MET, false},
        /* what is not ours to judge, and what is not known */
        {"gpus>=8", A100, MET, false},
        {"cuda>=99.0 driver<1 arch=1 brand=x", UNKNOWN, MET, false},
        /* broken */
        {"cuda", A100, NOT_UNDERSTOOD, false},
        {"cuda>=", A100, NOT_UNDERSTOOD, false},
        {">=12", A100, NOT_UNDERSTOOD, false},
        {"cuda=>12", A100, NOT_UNDERSTOOD, false},
        {"cuda>=twelve", A100, NOT_UNDERSTOOD, false},
        {"cuda>=1.2.3.4.5", A100, NOT_UNDERSTOOD, false},
        {"cuda>=12.", A100, NOT_UNDERSTOOD, false},
        {"cuda>=99999999999999999999", A100, NOT_UNDERSTOOD, false},
        {"cuda>=12.0,", A100, NOT_UNDERSTOOD, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool by_compat = false;
        enum verdict found = require_judge(all[i].expression, &all[i].given, &by_compat);
        if (found != all[i].verdict || by_compat != all[i].by_compat) {
            printf("%s, driver %s: verdict %d, by cuda-compat %d\n", all[i].expression,
                   all[i].given.driver, found, by_compat);
            wrong++;
        }
    }
    char *huge = malloc(1 << 20);
    memset(huge, 'x', (1 << 20) - 1);
    huge[(1 << 20) - 1] = '\0';
    bool by_compat = false;
    if (require_judge(huge, &A100, &by_compat) != NOT_UNDERSTOOD)
        wrong += printf("a huge expression is understood\n");
    free(huge);
}

static void environments(void)
{
    static const struct {
        const char *environment[5];
        enum verdict verdict;
        const char *reason; /* a part of it */
    } all[] = {
        {{"PATH=/bin", NULL}, MET, ""},
        {{"CUDA_VERSION=12.9.1", NULL}, MET, ""},
        {{"CUDA_VERSION=13.0.2", NULL}, NOT_MET, "CUDA_VERSION=13.0.2, but driver 550.163.01"},
        {{"CUDA_VERSION=", NULL}, MET, ""},
        {{"CUDA_VERSION=cu130", NULL}, MET, ""},
        /* the legacy variable counts only without the other */
        {{"CUDA_VERSION=13.0.2", "NVIDIA_REQUIRE_CUDA=cuda>=12.0", NULL}, MET, ""},
        {{"NVIDIA_REQUIRE_CUDA=cuda>=13.0", NULL}, NOT_MET, "cuda>=13.0, but driver"},
        {{"NVIDIA_REQUIRE_CUDA=cuda>=13.0", "NVIDIA_DISABLE_REQUIRE=true", NULL}, MET, ""},
        {{"NVIDIA_REQUIRE_CUDA=cuda>=13.0", "NVIDIA_DISABLE_REQUIRE=0", NULL}, NOT_MET, "13.0"},
        {{"NVIDIA_REQUIRE_CUDA=cuda>=13.0", "NVIDIA_REQUIRE_CUDA=cuda>=12.0", NULL}, MET, ""},
        {{"NVIDIA_REQUIRE_CUDA=cuda>=12.0", "NVIDIA_REQUIRE_CUDA=cuda>=13.0", NULL}, NOT_MET, ""},
        /* all variables have to be met */
        {{"NVIDIA_REQUIRE_CUDA=cuda>=12.0", "NVIDIA_REQUIRE_MINE=arch>=9.0", NULL},
         NOT_MET, "NVIDIA_REQUIRE_MINE=arch>=9.0"},
        {{"NVIDIA_REQUIRE_JETPACK=csv-mounts=all", NULL}, MET, ""},
        {{"NVIDIA_REQUIRE_CUDA=\033[2Jx\ny", NULL}, NOT_UNDERSTOOD, ": ?[2Jx?y:"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char reason[768] = "";
        bool by_compat;
        enum verdict found = require_environment((char *const *)all[i].environment, &A100,
                                                 &by_compat, reason, sizeof reason);
        if (found != all[i].verdict || strstr(reason, all[i].reason) == NULL) {
            printf("%s: verdict %d, reason %s\n", all[i].environment[0], found, reason);
            wrong++;
        }
    }
}

/* Read the string at "a" of a text that is not ended by a NUL, so that any step too far shows. */
static char *at_a(const char *text, size_t length)
{
    char *copy = malloc(length + !length);
    memcpy(copy, text, length);
    struct json json = {copy, copy + length};
    char *found = json_member(&json, "a") ? json_string(&json) : NULL;
    free(copy);
    return found;
}

static void texts(void)
{
    static const struct {
        const char *text, *value;
    } all[] = {
        {"{\"a\":\"x\"}", "x"},
        {" { \"b\" : [1, {\"a\": \"no\"}, null, -1.5e3, true], \"a\" : \"x\" } ", "x"},
        {"{\"a\":\"cuda\\u003e=12\"}", "cuda>=12"},
        {"{\"a\":\"\\\"\\\\\\/\\n\\u00e9\\ud83d\\ude00\"}", "\"\\/\n\xC3\xA9\xF0\x9F\x98\x80"},
        {"{\"a\":\"\\ud83d\"}", "\xEF\xBF\xBD"},
        {"{\"\\u0061\":\"x\"}", "x"},
        {"{\"a\":\"\\u0000\"}", NULL},
        {"{\"a\":\"\\x\"}", NULL},
        {"{\"a\":\"\\u12\"}", NULL},
        {"{\"a\":\"x", NULL},
        {"{\"a\":\"x\\", NULL},
        {"{\"a\":1}", NULL},
        {"{\"a\"", NULL},
        {"{\"b\":{\"c\":", NULL},
        {"[\"a\"]", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *found = at_a(all[i].text, strlen(all[i].text));
        bool same = found == NULL || all[i].value == NULL ? found == all[i].value
                                                          : strcmp(found, all[i].value) == 0;
        if (!same)
            wrong += printf("%s: read as %s\n", all[i].text, found == NULL ? "nothing" : found);
        free(found);
        for (size_t cut = 0; cut < strlen(all[i].text); cut++)
            free(at_a(all[i].text, cut));
    }
    char deep[20000];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"b\":", 5);
    if (at_a(deep, sizeof deep) != NULL)
        wrong += printf("a deep text is read\n");
}

int main(void)
{
    requirements();
    environments();
    texts();
    return wrong != 0;
}
